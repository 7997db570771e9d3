#include "evenkeel/plan/placement.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "evenkeel/base/error.h"

namespace evenkeel {

namespace {

void require_ranks(int num_experts, int num_ranks) {
  if (num_ranks < 1) throw InvalidArgument("ranks", fmt::format("{} ranks", num_ranks), "1 or more");
  if (num_experts < 1) throw InvalidArgument("experts", fmt::format("{} experts", num_experts), "1 or more");
}

void require_homes(const std::vector<int>& homes, std::size_t expert, int num_ranks) {
  const auto refuse = [&](const std::string& why, const std::string& allowed) {
    throw InvalidArgument(fmt::format("homes of expert {}", expert), why, allowed);
  };
  if (homes.empty()) refuse("has no rank", "at least one rank");
  for (auto home = homes.begin(); home != homes.end(); ++home) {
    if (*home < 0 || *home >= num_ranks)
      refuse(fmt::format("rank {} does not exist", *home), fmt::format("0..{}", num_ranks - 1));
    if (std::find(homes.begin(), home, *home) != home)
      refuse(fmt::format("rank {} twice", *home), "each rank at most once");
  }
}

}  // namespace

LayerPlacement LayerPlacement::contiguous(int num_experts, int num_ranks) {
  require_ranks(num_experts, num_ranks);
  std::vector<std::vector<int>> homes(static_cast<std::size_t>(num_experts));
  for (std::int64_t rank = 0; rank < num_ranks; ++rank) {
    const std::int64_t begin = rank * num_experts / num_ranks;
    const std::int64_t end = (rank + 1) * num_experts / num_ranks;
    for (std::int64_t e = begin; e < end; ++e) homes[static_cast<std::size_t>(e)] = {static_cast<int>(rank)};
  }
  return LayerPlacement(homes, num_ranks);
}

LayerPlacement::LayerPlacement(const std::vector<std::vector<int>>& homes, int num_ranks) {
  require_ranks(static_cast<int>(homes.size()), num_ranks);
  native_begin_.assign(static_cast<std::size_t>(num_ranks) + 1, 0);
  home_begin_.push_back(0);
  for (std::size_t e = 0; e < homes.size(); ++e) {
    require_homes(homes[e], e, num_ranks);
    for (int rank : homes[e]) {
      homes_.emplace_back(rank);
      ++native_begin_[static_cast<std::size_t>(rank) + 1];
    }
    home_begin_.push_back(homes_.size());
  }
  std::partial_sum(native_begin_.begin(), native_begin_.end(), native_begin_.begin());
  natives_.resize(homes_.size(), ExpertId(0));
  std::vector<std::size_t> next(native_begin_.begin(), native_begin_.end() - 1);
  for (std::size_t e = 0; e < homes.size(); ++e)
    for (int rank : homes[e]) natives_[next[static_cast<std::size_t>(rank)]++] = ExpertId(e);
}

Placement Placement::contiguous(int num_layers, int num_experts, int num_ranks) {
  constexpr std::int64_t most = std::int64_t{1} << 26;
  if (std::int64_t{num_layers} * num_experts > most)
    throw InvalidArgument("placement", fmt::format("{} layers of {} experts", num_layers, num_experts),
                          fmt::format("at most {} experts over all layers", most));
  return Placement(std::vector<LayerPlacement>(static_cast<std::size_t>(std::max(num_layers, 0)),
                                               LayerPlacement::contiguous(num_experts, num_ranks)));
}

Placement::Placement(std::vector<LayerPlacement> layers, LayerNumbers numbers)
    : layers_(std::move(layers)), numbers_(std::move(numbers)) {
  if (layers_.empty()) throw InvalidArgument("placement", "no layer", "at least one");
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const LayerPlacement& layer = layers_[i];
    if (layer.num_experts() != num_experts() || layer.num_ranks() != num_ranks())
      throw InvalidArgument("placement",
                            fmt::format("layer {} has {} experts on {} ranks, but layer 0 has {} on {}", i,
                                        layer.num_experts(), layer.num_ranks(), num_experts(), num_ranks()),
                            "the same numbers in every layer");
  }
  if (numbers_.known() && std::ssize(numbers_.numbers()) != num_layers())
    throw InvalidArgument(
        "layers", fmt::format("{} layer numbers for {} layers", numbers_.numbers().size(), num_layers()),
        fmt::format("{} layer numbers", num_layers()));
}

int Placement::row_for(const NumberedRows& loads, std::optional<int> layer, const std::string& name) const {
  if (num_layers() == 1 && !numbers_.known()) return 0;
  const bool by_number = loads.layers.known() && numbers_.known();
  if (!by_number && loads.num_rows > 1) paired_rows(loads, {name, numbers_, num_layers()}, "placement");
  if (loads.num_rows == 1 && loads.layers.known()) layer = loads.layers.number_of(0);
  if (!layer)
    throw InvalidArgument("layer", fmt::format("is not given, and the placement has {} layers", num_layers()),
                          numbers_.known() ? to_text(numbers_) : fmt::format("0..{}", num_layers() - 1));
  // If rows are matched by their order, the layer numbers of `loads` tell which row `layer` is.
  const auto row = by_number || loads.num_rows == 1 ? numbers_.row_of(*layer, num_layers())
                                                    : loads.layers.row_of(*layer, loads.num_rows);
  if (!row)
    throw InvalidArgument("placement",
                          fmt::format("{} has {}, but not layer {} of {}", name,
                                      described(numbers_, num_layers()), *layer, loads.name),
                          "a placement for that layer");
  return *row;
}

Placement Placement::paired_with(const NumberedRows& wanted, const std::string& name,
                                 const std::string& argument) const {
  std::vector<LayerPlacement> paired;
  for (int row : paired_rows(wanted, {name, numbers_, num_layers()}, argument)) paired.push_back(layer(row));
  return Placement(std::move(paired), wanted.layers.known() ? wanted.layers : numbers_);
}

const LayerPlacement& Placement::layer(int layer) const {
  if (layer < 0 || layer >= num_layers())
    throw InvalidArgument("layer", fmt::format("no layer {}", layer), fmt::format("0..{}", num_layers() - 1));
  return layers_[static_cast<std::size_t>(layer)];
}

}  // namespace evenkeel
