#include "evenkeel/io/internal/physical_rows.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "evenkeel/base/error.h"
#include "evenkeel/io/internal/parse_error.h"
#include "evenkeel/io/limits.h"

namespace evenkeel::internal {

namespace {

int num_physical(const LayerPlacement& layer) {
  int physical = 0;
  for (RankId rank : indices<RankId>(layer.num_ranks()))
    physical += static_cast<int>(layer.natives(rank).size());
  return physical;
}

// A number of copies makes a layer even. Where layers have unlike numbers, copies that were asked for are
// missing, as moves from another placement leave it: asking for them again would not help.
std::string what_makes_it_even(const Placement& placement, int index) {
  for (int layer = 0; layer < placement.num_layers(); ++layer)
    if (num_physical(placement.layer(layer)) != num_physical(placement.layer(index)))
      return fmt::format("layer {} has {} in all and layer {} has {}: place with more moves, or anew", index,
                         num_physical(placement.layer(index)), layer, num_physical(placement.layer(layer)));
  const LayerPlacement& layer = placement.layer(index);
  const int left = num_physical(layer) % layer.num_ranks();
  if (left == 0) return "place with equal sizes, or with more moves";
  const int wanted = num_physical(layer) - layer.num_experts() + layer.num_ranks() - left;
  return fmt::format(
      "place with {} redundant expert{} even, and where experts move from a placement with moves "
      "for all of them",
      wanted, wanted == 1 ? ", which makes it" : "s, which make it");
}

PhysicalRow row_of(const Placement& placement, int index, std::string_view format) {
  const LayerPlacement& layer = placement.layer(index);
  PhysicalRow row;
  const std::size_t on_first = layer.natives(RankId(0)).size();
  for (RankId rank : indices<RankId>(layer.num_ranks())) {
    const auto natives = layer.natives(rank);
    if (natives.size() != on_first)
      throw Unsupported(fmt::format(
          "{} gives every rank equally many physical experts, but in layer {} rank 0 has {} and "
          "rank {} has {}; {}",
          format, index, on_first, rank.value(), natives.size(), what_makes_it_even(placement, index)));
    for (ExpertId expert : natives) row.push_back(expert.value());
  }
  return row;
}

int experts_in(const std::vector<NamedRow>& rows, const RowsShape& shape) {
  const std::int64_t most = shape.num_experts.value_or(max_experts) - 1;
  std::int64_t largest = -1;
  for (const NamedRow& row : rows)
    for (std::int64_t expert : row.experts) {
      if (expert < 0 || expert > most)
        throw parse_error(shape.file, row.key, "expert {} is outside 0..{}", expert, most);
      largest = std::max(largest, expert);
    }
  return shape.num_experts.value_or(static_cast<int>(largest + 1));
}

LayerPlacement layer_of(const NamedRow& row, const RowsShape& shape, int num_experts) {
  const auto ranks = static_cast<std::size_t>(shape.num_ranks);
  const std::size_t size = row.experts.size();
  // Before anything is made of the number of experts.
  if (size < static_cast<std::size_t>(num_experts))
    throw parse_error(shape.file, row.key, "{} physical experts cannot be {} experts", size, num_experts);
  if (size % ranks != 0)
    throw parse_error(shape.file, row.key, "{} physical experts are not equally many on {} ranks", size,
                      ranks);
  std::vector<std::vector<int>> homes(static_cast<std::size_t>(num_experts));
  for (std::size_t i = 0; i < size; ++i) {
    const int rank = static_cast<int>(i / (size / ranks));
    auto& of_expert = homes[static_cast<std::size_t>(row.experts[i])];
    if (!of_expert.empty() && of_expert.back() == rank)
      throw parse_error(shape.file, row.key,
                        "rank {} holds expert {} twice; a placement has an expert once on a rank", rank,
                        row.experts[i]);
    of_expert.push_back(rank);
  }
  const auto homeless = std::ranges::find_if(homes, [](const auto& of) { return of.empty(); });
  if (homeless != homes.end())
    throw parse_error(shape.file, row.key, "expert {} of {} is on no rank", homeless - homes.begin(),
                      num_experts);
  return LayerPlacement(homes, shape.num_ranks);
}

}  // namespace

std::vector<PhysicalRow> physical_rows(const Placement& placement, std::string_view format) {
  std::vector<PhysicalRow> rows;
  for (int layer = 0; layer < placement.num_layers(); ++layer) {
    rows.push_back(row_of(placement, layer, format));
    if (is_dealt_round(rows.back(), placement.num_experts(), placement.num_ranks()))
      rows.back() = dealt_round(rows.back().size(), placement.num_experts());
    if (rows.back().size() != rows.front().size())
      throw Unsupported(
          fmt::format("{} has equally many physical experts in every layer, but layer 0 has {} and "
                      "layer {} has {}; place with more moves, or anew",
                      format, rows.front().size(), layer, rows.back().size()));
  }
  return rows;
}

PhysicalRow dealt_round(std::size_t num_physical, int num_experts) {
  PhysicalRow row(num_physical);
  for (std::size_t i = 0; i < num_physical; ++i)
    row[i] = static_cast<std::int64_t>(i % static_cast<std::size_t>(num_experts));
  return row;
}

bool is_dealt_round(const PhysicalRow& row, int num_experts, int num_ranks) {
  const auto by_rank = [&](PhysicalRow all) {
    const std::ptrdiff_t on_rank = std::ssize(all) / num_ranks;
    for (auto begin = all.begin(); begin != all.end(); begin += on_rank) std::sort(begin, begin + on_rank);
    return all;
  };
  return by_rank(row) == by_rank(dealt_round(row.size(), num_experts));
}

std::string row_text(std::span<const std::int64_t> row) {
  return fmt::format("[{}]", fmt::join(row, ", "));
}

Placement placement_of_rows(const std::vector<NamedRow>& rows, const RowsShape& shape) {
  if (rows.empty()) throw ParseError(shape.file, "", "has no layer");
  const int num_experts = experts_in(rows, shape);
  if (num_experts < 1) throw ParseError(shape.file, rows.front().key, "is empty");
  std::vector<LayerPlacement> layers;
  for (const NamedRow& row : rows) layers.push_back(layer_of(row, shape, num_experts));
  return Placement(std::move(layers));
}

}  // namespace evenkeel::internal
