#include "evenkeel/io/internal/physical_rows.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "evenkeel/base/error.h"
#include "evenkeel/io/internal/parse_error.h"

namespace evenkeel::internal {

namespace {

// Advice for a message. Enough redundant experts make the layer even, unless the number of moves from another
// placement is limited too much.
std::string what_makes_it_even(std::size_t num_physical, const LayerPlacement& layer) {
  const int left = static_cast<int>(num_physical) % layer.num_ranks();
  if (left == 0) return "make the placement with equal sizes, or allow more moves";
  const int wanted = static_cast<int>(num_physical) - layer.num_experts() + layer.num_ranks() - left;
  return fmt::format(
      "make the placement with {} redundant expert{}; if it starts from another placement, also allow enough "
      "moves",
      wanted, wanted == 1 ? "" : "s");
}

PhysicalRow row_of(const LayerPlacement& layer) {
  PhysicalRow row;
  for (RankId rank : indices<RankId>(layer.num_ranks()))
    for (ExpertId expert : layer.natives(rank)) row.push_back(expert.value());
  return row;
}

void require_even(const LayerPlacement& layer, int index, const PhysicalRow& row, std::string_view server) {
  const std::size_t on_first = layer.natives(RankId(0)).size();
  for (RankId rank : indices<RankId>(layer.num_ranks()))
    if (const std::size_t on_rank = layer.natives(rank).size(); on_rank != on_first)
      throw Unsupported(
          fmt::format("{} needs equally many physical experts on every rank, but in layer {} rank 0 has {} "
                      "and rank {} has {}; {}",
                      server, index, on_first, rank.value(), on_rank, what_makes_it_even(row.size(), layer)));
}

}  // namespace

std::vector<PhysicalRow> physical_rows(const Placement& placement, std::string_view server) {
  std::vector<PhysicalRow> rows;
  for (int layer = 0; layer < placement.num_layers(); ++layer) {
    rows.push_back(row_of(placement.layer(layer)));
    // Redundant experts may be missing because moves from another placement were limited.
    if (rows.back().size() != rows.front().size())
      throw Unsupported(
          fmt::format("{} needs equally many physical experts in every layer, but layer 0 has {} and "
                      "layer {} has {}; allow more moves, or make a new placement",
                      server, rows.front().size(), layer, rows.back().size()));
  }
  const PhysicalRow round = dealt_round(rows.front().size(), placement.num_experts());
  PhysicalRow sorted = round;
  const std::ptrdiff_t on_rank = std::ssize(sorted) / placement.num_ranks();
  for (int rank = 0; rank < placement.num_ranks(); ++rank)
    std::sort(sorted.begin() + rank * on_rank, sorted.begin() + (rank + 1) * on_rank);
  for (std::size_t layer = 0; layer < rows.size(); ++layer) {
    const int index = static_cast<int>(layer);
    require_even(placement.layer(index), index, rows[layer], server);
    if (rows[layer] == sorted) rows[layer] = round;
  }
  return rows;
}

PhysicalRow dealt_round(std::size_t num_physical, int num_experts) {
  PhysicalRow row(num_physical);
  for (std::size_t i = 0; i < num_physical; ++i)
    row[i] = static_cast<std::int64_t>(i % static_cast<std::size_t>(num_experts));
  return row;
}

std::string row_text(const PhysicalRow& row) {
  return fmt::format("[{}]", fmt::join(row, ", "));
}

std::vector<std::int64_t> even_offsets(const NamedRow& row, int num_ranks, const std::string& file,
                                       std::string_view besides) {
  const std::int64_t size = std::ssize(row.experts);
  if (size % num_ranks != 0)
    throw parse_error(file, row.key, "{} physical experts cannot be divided evenly over {} ranks{}", size,
                      num_ranks, besides);
  std::vector<std::int64_t> offsets;
  for (int rank = 0; rank <= num_ranks; ++rank) offsets.push_back(rank * (size / num_ranks));
  return offsets;
}

std::vector<std::vector<int>> homes_in(const NamedRow& row, std::span<const std::int64_t> rank_offsets,
                                       int num_experts, const std::string& file) {
  const std::vector<std::int64_t>& experts = row.experts;
  for (std::size_t i = 0; i < experts.size(); ++i)
    if (experts[i] < 0 || experts[i] >= num_experts)
      throw parse_error(file, fmt::format("{}[{}]", row.key, i), "expert {} is outside 0..{}", experts[i],
                        num_experts - 1);
  // Checked before memory is allocated for num_experts.
  if (std::ssize(experts) < num_experts)
    throw parse_error(file, row.key, "has {} physical experts, fewer than the {} experts", experts.size(),
                      num_experts);
  std::vector<std::vector<int>> homes(static_cast<std::size_t>(num_experts));
  int rank = 0;
  for (std::int64_t i = 0; i < std::ssize(experts); ++i) {
    while (i >= rank_offsets[static_cast<std::size_t>(rank) + 1]) ++rank;
    const auto expert = static_cast<std::size_t>(experts[static_cast<std::size_t>(i)]);
    if (!homes[expert].empty() && homes[expert].back() == rank)
      throw parse_error(file, fmt::format("{}[{}]", row.key, i),
                        "rank {} holds expert {} twice; a rank may hold an expert only once", rank, expert);
    homes[expert].push_back(rank);
  }
  const auto homeless = std::ranges::find_if(homes, [](const auto& ranks) { return ranks.empty(); });
  if (homeless != homes.end())
    throw parse_error(file, row.key, "expert {} of {} is on no rank", homeless - homes.begin(), num_experts);
  return homes;
}

}  // namespace evenkeel::internal
