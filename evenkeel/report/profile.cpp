#include "evenkeel/report/profile.h"

#include "evenkeel/plan/placement.h"
#include "evenkeel/report/internal/json.h"
#include "evenkeel/report/internal/numbers.h"
#include "evenkeel/report/internal/page.h"

namespace evenkeel {

namespace {

using internal::Json;

struct LayerImbalance {
  int number = 0;  // layer number in the model, if known
  std::int64_t assignments = 0;
  Imbalance experts;
  std::optional<Imbalance> ranks;
};

Imbalance of_ranks(std::span<const std::int64_t> loads, int ranks) {
  const auto homes = LayerPlacement::contiguous(static_cast<int>(loads.size()), ranks);
  std::vector<std::int64_t> sums(static_cast<std::size_t>(ranks), 0);
  for (ExpertId expert : indices<ExpertId>(loads.size()))
    sums[homes.owner(expert).offset()] += loads[expert.offset()];
  return imbalance(sums);
}

std::vector<LayerImbalance> by_layer(const ProfileReport& report) {
  const RoutingProfile& profile = report.profile;
  std::vector<LayerImbalance> layers;
  for (LayerId layer : indices<LayerId>(profile.num_layers())) {
    layers.push_back({profile.layers().number_of(layer.value()), profile.total_load(layer),
                      imbalance(profile.loads(layer)), std::nullopt});
    if (report.ranks) layers.back().ranks = of_ranks(profile.loads(layer), *report.ranks);
  }
  return layers;
}

Json json_of(const Imbalance& each) {
  return {{"max_over_mean", each.max_over_mean},
          {"mean_over_max", each.mean_over_max},
          {"relative_excess", each.relative_excess}};
}

void add_cells(const Imbalance& each, std::vector<std::string>& row) {
  for (double figure : {each.max_over_mean, each.mean_over_max, each.relative_excess})
    row.push_back(internal::fixed(figure));
}

}  // namespace

std::string to_json(const ProfileReport& report) {
  const RoutingProfile& profile = report.profile;
  Json layers = Json::array();
  for (const LayerImbalance& each : by_layer(report)) {
    layers.push_back(
        {{"layer", each.number}, {"assignments", each.assignments}, {"experts", json_of(each.experts)}});
    if (each.ranks) layers.back()["ranks"] = json_of(*each.ranks);
  }
  return internal::line_of({{"traces", report.traces},
                            {"tokens", internal::or_null(report.tokens)},
                            {"num_layers", profile.num_layers()},
                            {"layer_numbers", internal::numbers_or_null(profile.layers())},
                            {"num_experts", profile.num_experts()},
                            {"transitions", profile.has_transitions()},
                            {"output", report.output.empty() ? Json(nullptr) : Json(report.output)},
                            {"layers", std::move(layers)}},
                           report.axes);
}

std::string to_text(const ProfileReport& report) {
  internal::Page page;
  const RoutingProfile& profile = report.profile;
  page.put("{} layers{} of {} experts{}{}\n\n", profile.num_layers(),
           profile.layers().known() ? fmt::format(" ({})", to_text(profile.layers())) : "",
           profile.num_experts(), report.tokens ? fmt::format(", {} tokens", *report.tokens) : "",
           report.output.empty() ? "" : fmt::format("; written to {}", report.output));
  std::vector<std::string> head = {"layer", "assignments", "experts: max/mean", "mean/max", "excess"};
  if (report.ranks)
    head.insert(head.end(), {fmt::format("{} ranks: max/mean", *report.ranks), "mean/max", "excess"});
  Table table(std::move(head));
  for (const LayerImbalance& each : by_layer(report)) {
    std::vector<std::string> row = {fmt::format("{}", each.number), fmt::format("{}", each.assignments)};
    add_cells(each.experts, row);
    if (each.ranks) add_cells(*each.ranks, row);
    table.add(std::move(row));
  }
  page.put(table);
  page.put("\n  excess: (max - mean) / mean\n");
  return std::move(page).text();
}

}  // namespace evenkeel
