#include "evenkeel/io/unplaced_layers.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <ranges>
#include <utility>

#include "evenkeel/plan/dispatch.h"

namespace evenkeel {

namespace {

// Layers of a placement, by layer number.
using Rows = std::map<int, LayerPlacement>;

Rows rows_of(const Placement& placement) {
  Rows rows;
  for (int row = 0; row < placement.num_layers(); ++row)
    rows.emplace(placement.layers().number_of(row), placement.layer(row));
  return rows;
}

Placement placement_of(const Rows& rows) {
  const auto numbers = std::views::keys(rows);
  const auto layers = std::views::values(rows);
  return Placement({layers.begin(), layers.end()}, LayerNumbers({numbers.begin(), numbers.end()}));
}

// Experts in the servers' initial order; contiguous homes if ranks or layers of `like` hold unequally many
// experts.
LayerPlacement in_order(const Placement& like) {
  const int on_rank = like.layer(0).most_natives();
  for (int layer = 0; layer < like.num_layers(); ++layer)
    for (RankId rank : indices<RankId>(like.num_ranks()))
      if (std::ssize(like.layer(layer).natives(rank)) != on_rank)
        return LayerPlacement::contiguous(like.num_experts(), like.num_ranks());
  return LayerPlacement(round_robin_copies(on_rank * like.num_ranks(), like.num_experts(), like.num_ranks()),
                        like.num_ranks());
}

std::vector<int> not_in(const Rows& rows, std::vector<int> layers) {
  std::erase_if(layers, [&](int layer) { return rows.contains(layer); });
  return layers;
}

std::string named(const std::vector<int>& layers) {
  return fmt::format("layer{} {}", layers.size() == 1 ? "" : "s", to_text(LayerNumbers(layers)));
}

// Removes from `rows` the layers of `placement` that have no load in any profile, since their homes are
// arbitrary. If no layer would be left, all stay.
void drop_idle_layers(Rows& rows, const Placement& placement, std::span<const RoutingProfile> profiles) {
  Rows used;
  for (LayerId layer : indices<LayerId>(placement.num_layers()))
    if (std::ranges::any_of(profiles, [&](const RoutingProfile& each) { return each.total_load(layer) > 0; }))
      used.insert(rows.extract(placement.layers().number_of(layer.value())));
  if (!used.empty()) rows = std::move(used);
}

// Adds the model's layers that only `before` has. Without a model none is added. A note names these layers in
// both cases.
void add_layers_before(Rows& rows, const Placement& before, const std::optional<ModelLayers>& model,
                       std::vector<std::string>& notes) {
  std::vector<int> others = not_in(rows, before.layers().numbers());
  if (model)
    std::erase_if(others,
                  [all = model->all_layers()](int layer) { return !std::ranges::binary_search(all, layer); });
  if (others.empty()) return;
  notes.push_back(
      fmt::format("no new placement was made for {} of the previous placement: {}", named(others),
                  model ? "the experts stay where they are"
                        : "they are left out; with --model (model=) those with experts stay where they are"));
  if (!model) return;
  const Rows rows_before = rows_of(before);
  for (const int layer : others) rows.insert(*rows_before.find(layer));
}

}  // namespace

Placement with_unplaced_layers(const Placement& placement, const std::vector<int>& layers,
                               const ModelLayers& model, std::vector<std::string>& notes) {
  if (!placement.layers().known()) return placement;
  Rows rows = rows_of(placement);
  const std::vector<int> unplaced = not_in(rows, layers);
  if (unplaced.empty()) return placement;
  notes.push_back(fmt::format(
      "no placement was made for {} of the model{}: their experts stay in order", named(unplaced),
      std::ranges::includes(model.table_layers, unplaced) ? ", where a table chooses experts by token" : ""));
  const LayerPlacement plain = in_order(placement);
  for (const int layer : unplaced) rows.emplace(layer, plain);
  return placement_of(rows);
}

Placement of_all_layers(const Placement& placement, std::span<const RoutingProfile> profiles,
                        const std::optional<Placement>& before, const std::optional<ModelLayers>& model,
                        std::vector<std::string>& notes) {
  if (!placement.layers().known()) return placement;
  Rows rows = rows_of(placement);
  if (model) drop_idle_layers(rows, placement, profiles);
  if (before) add_layers_before(rows, *before, model, notes);
  const Placement all = placement_of(rows);
  return model ? with_unplaced_layers(all, model->moe_layers, *model, notes) : all;
}

}  // namespace evenkeel
