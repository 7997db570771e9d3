#include "evenkeel/report/evaluate.h"

#include "evenkeel/report/internal/json.h"
#include "evenkeel/report/internal/numbers.h"
#include "evenkeel/report/internal/page.h"
#include "evenkeel/report/internal/verdict.h"

namespace evenkeel {

namespace {

using internal::fixed;
using internal::Json;

Json json_of(const Recording& recording, const RecordingJudgement& judged) {
  const PlacementQuality& quality = judged.quality;
  const auto traffic = [&](double each) { return quality.traffic_known ? Json(each) : Json(nullptr); };
  Json layers = Json::array();
  for (int row = 0; row < recording.profile.num_layers(); ++row)
    layers.push_back(recording.profile.layers().number_of(row));
  Json steps;
  if (judged.steps)
    steps = {{"median", judged.steps->median}, {"p95", judged.steps->p95}, {"worst", judged.steps->worst}};
  return {{"recording", recording.name},
          {"layers", std::move(layers)},
          {"max_over_mean_mean", quality.max_over_mean_mean},
          {"max_over_mean_worst", quality.max_over_mean_worst},
          {"crossing", traffic(quality.crossing)},
          {"crossing_between_nodes", traffic(quality.crossing_across)},
          {"steps", std::move(steps)}};
}

// The placement's name. If its dispatch rule for copies is not the default, also the rule and the number of
// nodes, on which the rule depends.
std::string label_of(const NamedPlacement& placement, int num_nodes) {
  if (placement.dispatch == Dispatch::even) return placement.name;
  return fmt::format("{} ({}, {} node{})", placement.name, name_of(placement.dispatch), num_nodes,
                     num_nodes == 1 ? "" : "s");
}

Table table_of(const Evaluation& evaluation, std::size_t recording) {
  std::vector<std::string> head = {evaluation.recordings[recording].name, "mean of layers", "worst layer"};
  if (evaluation.placements.front().on[recording].steps)
    head.insert(head.end(), {"step: median", "p95", "worst"});
  Table table(std::move(head));
  const auto add = [&](const JudgedPlacement& placement) {
    const auto& [quality, steps] = placement.on[recording];
    std::vector<std::string> row = {label_of(placement.placement, evaluation.num_nodes),
                                    fixed(quality.max_over_mean_mean), fixed(quality.max_over_mean_worst)};
    if (steps) row.insert(row.end(), {fixed(steps->median), fixed(steps->p95), fixed(steps->worst)});
    table.add(std::move(row));
  };
  add(evaluation.against);
  for (const JudgedPlacement& each : evaluation.placements)
    if (each.placement.name != evaluation.against.placement.name) add(each);
  return table;
}

}  // namespace

std::string to_json(const Evaluation& evaluation) {
  Json placements = Json::array();
  for (const JudgedPlacement& each : evaluation.placements) {
    Json results = Json::array();
    for (std::size_t i = 0; i < each.on.size(); ++i)
      results.push_back(json_of(evaluation.recordings[i], each.on[i]));
    Json placement = {{"file", each.placement.name}, {"results", std::move(results)}};
    if (each.placement.dispatch != Dispatch::even) placement["dispatch"] = name_of(each.placement.dispatch);
    placements.push_back(std::move(placement));
  }
  Json notes = Json::array();
  for (const Recording& recording : evaluation.recordings)
    for (const std::string& note : recording.notes)
      notes.push_back(fmt::format("{}: {}", recording.name, note));
  std::map<std::string, std::string> axes;
  for (const Recording& recording : evaluation.recordings)
    if (!recording.axes.empty()) axes[recording.name] = recording.axes;
  return internal::line_of({{"placements", std::move(placements)},
                            {"verdict", internal::json_of(evaluation.verdict)},
                            {"notes", std::move(notes)}},
                           axes);
}

std::string to_json(const Verdict& verdict) {
  return internal::line_of(internal::json_of(verdict));
}

std::string to_text(const Evaluation& evaluation) {
  internal::Page page;
  const RoutingProfile& first = evaluation.recordings.front().profile;
  const std::size_t count = evaluation.recordings.size();
  page.put("{} layers of {} experts on {} ranks: max/mean load of {} placements on {} recording{}\n\n",
           first.num_layers(), first.num_experts(), evaluation.num_ranks, evaluation.placements.size(), count,
           count == 1 ? "" : "s");
  for (std::size_t i = 0; i < count; ++i) {
    page.put(table_of(evaluation, i));
    page.put("\n");
  }
  internal::put_verdict(page, evaluation.verdict);
  return std::move(page).text();
}

}  // namespace evenkeel
