#include "evenkeel/io/unplaced_layers.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

namespace evenkeel {

namespace {

// How many physical experts each rank holds; 0 where ranks or layers differ.
int physical_on_rank(const Placement& placement) {
  const int first = placement.layer(0).most_natives();
  for (int layer = 0; layer < placement.num_layers(); ++layer)
    for (RankId rank : indices<RankId>(placement.num_ranks()))
      if (std::ssize(placement.layer(layer).natives(rank)) != first) return 0;
  return first;
}

LayerPlacement in_order(const Placement& like) {
  const int on_rank = physical_on_rank(like);
  if (on_rank == 0) return LayerPlacement::contiguous(like.num_experts(), like.num_ranks());
  std::vector<std::vector<int>> homes(static_cast<std::size_t>(like.num_experts()));
  for (int i = 0; i < on_rank * like.num_ranks(); ++i)
    homes[static_cast<std::size_t>(i % like.num_experts())].push_back(i / on_rank);
  return LayerPlacement(homes, like.num_ranks());
}

Placement joined(const Placement& placement, const Placement& more) {
  std::map<int, const LayerPlacement*> rows;
  for (const Placement* each : {&placement, &more})
    for (int row = 0; row < each->num_layers(); ++row)
      rows.emplace(each->layers().number_of(row), &each->layer(row));
  std::vector<int> numbers;
  std::vector<LayerPlacement> layers;
  for (const auto& [number, layer] : rows) {
    numbers.push_back(number);
    layers.push_back(*layer);
  }
  return Placement(std::move(layers), LayerNumbers(std::move(numbers)));
}

std::vector<int> only_in(const std::vector<int>& layers, const Placement& placement) {
  std::vector<int> only;
  std::ranges::set_difference(layers, placement.layers().numbers(), std::back_inserter(only));
  return only;
}

std::vector<int> both(const std::vector<int>& some, const std::vector<int>& others) {
  std::vector<int> common;
  std::ranges::set_intersection(some, others, std::back_inserter(common));
  return common;
}

std::string named(const std::vector<int>& layers) {
  return fmt::format("layer{} {}", layers.size() == 1 ? "" : "s", to_text(LayerNumbers(layers)));
}

// `placement` without the layers that none of the profiles has a load of: their homes mean nothing. As it is
// where it has no numbers, or no layer would be left.
Placement without_idle_layers(const Placement& placement, std::span<const RoutingProfile> profiles) {
  if (!placement.layers().known()) return placement;
  std::vector<int> used;
  for (LayerId layer : indices<LayerId>(placement.num_layers()))
    if (std::ranges::any_of(profiles, [&](const RoutingProfile& each) { return each.total_load(layer) > 0; }))
      used.push_back(placement.layers().number_of(layer.value()));
  if (used.empty()) return placement;
  const int num_used = static_cast<int>(used.size());
  return placement.paired_with({"the profile", LayerNumbers(std::move(used)), num_used}, "it", "placement");
}

// `placement` with those of the model's layers that only `before` has, as they are there. A note names them,
// also where no model says which have experts and none is taken. Both have numbers, else nothing is done.
Placement with_layers_before(const Placement& placement, const Placement& before,
                             const std::optional<ModelLayers>& model, std::vector<std::string>& notes) {
  if (!placement.layers().known() || !before.layers().known()) return placement;
  std::vector<int> others = only_in(before.layers().numbers(), placement);
  if (model) others = both(others, model->all_layers());
  if (others.empty()) return placement;
  notes.push_back(fmt::format(
      "no placement was made for {} of the placement before: {}", named(others),
      model ? "the experts stay where it has them"
            : "they are left out; with --model (model=) those with experts stay where it has them"));
  if (!model) return placement;
  const LayerNumbers kept(std::move(others));
  const int num_kept = static_cast<int>(kept.numbers().size());
  return joined(placement, before.paired_with({"the model", kept, num_kept}, "the placement before", "from"));
}

}  // namespace

Placement with_unplaced_layers(const Placement& placement, const std::vector<int>& layers,
                               const ModelLayers& model, std::vector<std::string>& notes) {
  if (!placement.layers().known()) return placement;
  const std::vector<int> unplaced = only_in(layers, placement);
  if (unplaced.empty()) return placement;
  notes.push_back(fmt::format(
      "no placement was made for {} of the model{}: the experts stay in order there", named(unplaced),
      std::ranges::includes(model.table_layers, unplaced) ? ", where a table chooses experts by token" : ""));
  return joined(placement, Placement(std::vector<LayerPlacement>(unplaced.size(), in_order(placement)),
                                     LayerNumbers(unplaced)));
}

Placement of_all_layers(const Placement& placement, std::span<const RoutingProfile> profiles,
                        const std::optional<Placement>& before, const std::optional<ModelLayers>& model,
                        std::vector<std::string>& notes) {
  Placement all = model ? without_idle_layers(placement, profiles) : placement;
  if (before) all = with_layers_before(all, *before, model, notes);
  return model ? with_unplaced_layers(all, model->moe_layers, *model, notes) : all;
}

}  // namespace evenkeel
