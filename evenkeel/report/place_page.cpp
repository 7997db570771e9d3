// The page of `evenkeel place`.
#include <fmt/format.h>

#include "evenkeel/report/internal/steps_page.h"
#include "evenkeel/report/internal/verdict.h"
#include "evenkeel/report/place.h"

namespace evenkeel {

namespace {

using internal::column;
using internal::Json;
using internal::tile;

Json summary_of(const Placing& placing, const std::string& before_name) {
  const PlacementQuality& before = placing.result.before;
  const PlacementQuality& after = placing.result.after;
  Json tiles = Json::array(
      {tile("max/mean load, mean of layers", before.max_over_mean_mean, after.max_over_mean_mean, "ratio"),
       tile("max/mean load, worst layer", before.max_over_mean_worst, after.max_over_mean_worst, "ratio")});
  if (placing.judged.steps.size() == 1) {
    const auto& [name, was, is] = placing.judged.steps.front();
    tiles.push_back(tile("max/mean load, median step", was.median, is.median, "ratio"));
    tiles.push_back(tile("step at 95 %", was.p95, is.p95, "ratio"));
    tiles.push_back(tile("worst step", was.worst, is.worst, "ratio"));
  }
  if (after.traffic_known && before.total > 0 && after.total > 0)
    tiles.push_back(
        tile("crosses ranks", before.crossing / before.total, after.crossing / after.total, "share"));
  if (after.traffic_known && placing.topology.num_nodes() > 1 && before.total > 0 && after.total > 0)
    tiles.push_back(tile("crosses nodes", before.crossing_across / before.total,
                         after.crossing_across / after.total, "share"));
  if (placing.held_out)
    tiles.push_back(tile(fmt::format("held out, {} folds", HeldOut::num_folds),
                         placing.held_out->mean_before(), placing.held_out->mean_after(), "ratio"));
  return {{"kind", "tiles"},
          {"id", "summary"},
          {"title", "What placing gives"},
          {"caption",
           "Measured on the data that the placement was made from; a held-out figure is on data that "
           "it was not made from."},
          {"before", before_name},
          {"after", "placed"},
          {"tiles", std::move(tiles)}};
}

Json recordings_table(const char* id, const char* title, const std::vector<NamedQuality>& recordings) {
  Json rows = Json::array();
  for (const auto& [name, quality] : recordings)
    rows.push_back({{"name", name},
                    {"mean_before", quality.before.max_over_mean_mean},
                    {"worst_before", quality.before.max_over_mean_worst},
                    {"mean", quality.after.max_over_mean_mean},
                    {"worst", quality.after.max_over_mean_worst}});
  return {{"kind", "table"},
          {"id", id},
          {"title", title},
          {"caption", "max/mean load."},
          {"columns",
           Json::array({column("name", "recording"), column("mean_before", "before: mean of layers", "ratio"),
                        column("worst_before", "worst layer", "ratio"),
                        column("mean", "placed: mean", "ratio"), column("worst", "worst layer", "ratio")})},
          {"rows", std::move(rows)}};
}

Json copies_of(const CopyChoice& choice) {
  Json points = Json::array();
  for (const auto& [copies, ratio, slots] : choice.tried) points.push_back({copies, internal::drawn(ratio)});
  return {{"kind", "curves"},
          {"id", "copies"},
          {"title", "How many copies pay"},
          {"caption",
           fmt::format("The placement has {} redundant experts in each layer.", choice.redundant_experts)},
          {"x", {{"label", "redundant experts"}, {"whole", true}}},
          {"y", {{"label", "max/mean load"}, {"unit", "ratio"}}},
          {"panels",
           Json::array({{{"name", ""},
                         {"series", Json::array({{{"name", "placed"}, {"points", std::move(points)}}})}}})}};
}

Json objectives_of(const PlaceResult& result) {
  Json rows = Json::array();
  for (const auto& [name, value] : result.objective)
    rows.push_back({{"name", name}, {"reached", value}, {"bound", result.bound.at(name)}});
  return {{"kind", "table"},
          {"id", "objectives"},
          {"title", "How near the optimum"},
          {"caption", "No placement has less than the bound."},
          {"columns", Json::array({{{"key", "name"}, {"label", "objective"}},
                                   {{"key", "reached"}, {"label", "reached"}},
                                   {{"key", "bound"}, {"label", "bound"}}})},
          {"rows", std::move(rows)}};
}

}  // namespace

std::string to_html(const Placing& placing, const PlacedRecordings& recordings, const PageOrigin& origin) {
  const PlaceResult& result = placing.result;
  const NamedPlacement before{.name = placing.options.from ? "from" : "contiguous",
                              .placement = placing.options.from,
                              .argument = "--from",
                              .dispatch = placing.options.dispatch};
  const NamedPlacement after{.name = "placed",
                             .placement = result.placement,
                             .argument = "--judge",
                             .dispatch = placing.options.dispatch};
  const internal::TwoPlacements placements{before, after, placing.topology};
  Json page = internal::page_of(
      fmt::format("A placement of {} layers of {} experts on {} ranks", result.placement.num_layers(),
                  result.placement.num_experts(), placing.topology.num_ranks()),
      origin);
  Json& sections = page["sections"];
  const JudgedPlacing& judged = placing.judged;
  if (judged.judged_verdict)
    sections.push_back(internal::verdict_section(*judged.judged_verdict, "verdict", "Verdict on other data"));
  if (judged.verdict)
    sections.push_back(internal::verdict_section(*judged.verdict, "own-verdict", "Verdict on its own data"));
  sections.push_back(summary_of(placing, before.name));
  // Shows the recordings that the placement was judged on, if there are any.
  const std::span<const Recording> shown = recordings.others.empty() ? recordings.own : recordings.others;
  internal::add_recordings(page, shown, placements);
  internal::add_traffic(page, result.before, result.after, placements,
                        placing.options.traffic == TrafficModel::layer_to_layer
                            ? "Transitions of the profile from one layer to the next, over all layers."
                            : "Assignments of the profile from the token's rank, one way.");
  if (placing.copies) sections.push_back(copies_of(*placing.copies));
  // The steps of a single recording are already drawn.
  if (placing.per_recording.size() == recordings.own.size())
    sections.push_back(recordings_table("made-from", "Recordings it was made from", placing.per_recording));
  if (!judged.judged.empty())
    sections.push_back(recordings_table("judged-on", "Recordings it was judged on", judged.judged));
  sections.push_back(objectives_of(result));
  for (const std::string& note : result.notes) page["notes"].push_back(note);
  return internal::html_page(page);
}

}  // namespace evenkeel
