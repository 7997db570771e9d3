// The page of `evenkeel evaluate`.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <functional>

#include "evenkeel/report/evaluate.h"
#include "evenkeel/report/internal/steps_page.h"
#include "evenkeel/report/internal/verdict.h"

namespace evenkeel {

namespace {

using internal::column;
using internal::Json;

// Figures of the steps of the worst recording. Shown only if all recordings are divided into steps.
Json tiles_of_steps(const JudgedPlacement& before, const JudgedPlacement& after) {
  Json tiles = Json::array();
  const auto has_steps = [](const RecordingJudgement& judgement) { return judgement.steps.has_value(); };
  if (!std::ranges::all_of(before.on, has_steps) || !std::ranges::all_of(after.on, has_steps)) return tiles;
  const auto add = [&](const char* label, double StepSpread::*figure) {
    const auto worst = [&](const JudgedPlacement& placement) {
      double most = 0;
      for (const RecordingJudgement& each : placement.on) most = std::max(most, (*each.steps).*figure);
      return most;
    };
    tiles.push_back(internal::tile(
        fmt::format("max/mean load, {}{}", label, before.on.size() > 1 ? " of the worst recording" : ""),
        worst(before), worst(after), "ratio"));
  };
  add("median step", &StepSpread::median);
  add("step at 95 %", &StepSpread::p95);
  add("worst step", &StepSpread::worst);
  return tiles;
}

Json table_of(const Evaluation& evaluation) {
  Json rows = Json::array();
  const auto add = [&](const JudgedPlacement& placement) {
    for (std::size_t i = 0; i < placement.on.size(); ++i) {
      const auto& [quality, steps] = placement.on[i];
      Json row = {{"placement", placement.placement.name},
                  {"recording", evaluation.recordings[i].name},
                  {"dispatch", name_of(placement.placement.dispatch)},
                  {"mean", quality.max_over_mean_mean},
                  {"layer", quality.max_over_mean_worst}};
      if (steps) row.update({{"median", steps->median}, {"p95", steps->p95}, {"worst", steps->worst}});
      if (quality.traffic_known && quality.total > 0) row["crossing"] = quality.crossing / quality.total;
      rows.push_back(std::move(row));
    }
  };
  add(evaluation.against);
  for (const JudgedPlacement& each : evaluation.placements)
    if (each.placement.name != evaluation.against.placement.name) add(each);
  return {{"kind", "table"},
          {"id", "placements"},
          {"title", "All placements"},
          {"caption", "max/mean load: over the whole recording, and in its steps."},
          {"columns",
           Json::array({column("placement", "placement", ""), column("recording", "recording", ""),
                        column("dispatch", "copies", ""), column("mean", "mean of layers", "ratio"),
                        column("layer", "worst layer", "ratio"), column("median", "median step", "ratio"),
                        column("p95", "95 %", "ratio"), column("worst", "worst step", "ratio"),
                        column("crossing", "crosses ranks", "share")})},
          {"rows", std::move(rows)}};
}

}  // namespace

std::string to_html(const Evaluation& evaluation, const Topology& topology, const PageOrigin& origin) {
  const JudgedPlacement& before = evaluation.against;
  const JudgedPlacement& after = *std::ranges::find(evaluation.placements, evaluation.verdict.placement,
                                                    [](const auto& each) { return each.placement.name; });
  const internal::TwoPlacements placements{before.placement, after.placement, topology};
  const RoutingProfile& first = evaluation.recordings.front().profile;
  Json page = internal::page_of(
      fmt::format("Placement {} on {} ranks", std::filesystem::path(after.placement.name).filename().string(),
                  evaluation.num_ranks),
      origin);
  page["notes"].push_back(fmt::format("{} layers of {} experts on {} ranks in {} node{}", first.num_layers(),
                                      first.num_experts(), evaluation.num_ranks, evaluation.num_nodes,
                                      evaluation.num_nodes == 1 ? "" : "s"));
  for (const std::string& note : evaluation.verdict.notes) page["notes"].push_back(note);
  for (const Recording& recording : evaluation.recordings)
    for (const std::string& note : recording.notes)
      page["notes"].push_back(fmt::format("{}: {}", recording.name, note));
  page["sections"].push_back(
      internal::verdict_section(evaluation.verdict, "verdict", "Verdict", tiles_of_steps(before, after)));
  internal::add_recordings(page, evaluation.recordings, placements);
  if (evaluation.recordings.size() == 1)
    internal::add_traffic(page, before.on.front().quality, after.on.front().quality, placements,
                          "Transitions from one layer to the next, over all layers.");
  page["sections"].push_back(table_of(evaluation));
  return internal::html_page(page);
}

}  // namespace evenkeel
