#include "evenkeel/report/place.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "evenkeel/base/printable.h"
#include "evenkeel/report/heat_map.h"
#include "evenkeel/report/internal/json.h"
#include "evenkeel/report/internal/numbers.h"
#include "evenkeel/report/internal/page.h"
#include "evenkeel/report/internal/verdict.h"

namespace evenkeel {

namespace {

using internal::fixed;
using internal::grouped;
using internal::Json;
using internal::Page;

// The most rows that a table has. There may be thousands of steps.
constexpr std::size_t kMostRecordings = 16;

const char* solver_name(const PlaceResult& result) {
  return result.solver == PlaceOptions::Solver::exact ? "exact" : "fast";
}

Json json_of(const PlacementQuality& quality) {
  const auto traffic = [&](double each) { return quality.traffic_known ? Json(each) : Json(nullptr); };
  return {{"max_over_mean_mean", quality.max_over_mean_mean},
          {"max_over_mean_worst", quality.max_over_mean_worst},
          {"mean_over_max_mean", quality.mean_over_max_mean},
          {"relative_excess_mean", quality.relative_excess_mean},
          {"crossing", traffic(quality.crossing)},
          {"crossing_within_nodes", traffic(quality.crossing_within)},
          {"crossing_between_nodes", traffic(quality.crossing_across)},
          {"total", traffic(quality.total)},
          {"worst_pair", traffic(quality.worst_pair)}};
}

Json json_of(const std::vector<NamedQuality>& recordings) {
  Json list = Json::array();
  for (const auto& [name, quality] : recordings)
    list.push_back(
        {{"recording", name}, {"before", json_of(quality.before)}, {"after", json_of(quality.after)}});
  return list;
}

Json json_of(const StepSpread& steps) {
  return {{"median", steps.median}, {"p95", steps.p95}, {"worst", steps.worst}};
}

Json json_of(const std::vector<NamedSteps>& recordings) {
  Json list = Json::array();
  for (const auto& [name, before, after] : recordings)
    list.push_back({{"recording", name}, {"before", json_of(before)}, {"after", json_of(after)}});
  return list;
}

Json json_of(const CopyChoice& choice) {
  Json tried = Json::array();
  for (const auto& [copies, ratio, slots] : choice.tried)
    tried.push_back({{"redundant_experts", copies}, {"max_over_mean", ratio}, {"slots", slots}});
  return {{"redundant_experts", choice.redundant_experts}, {"tried", std::move(tried)}};
}

Json json_of(const HeldOut& held_out) {
  return {{"max_over_mean_before", held_out.mean_before()},
          {"max_over_mean_after", held_out.mean_after()},
          {"blocks", held_out.after.size()},
          {"folds", HeldOut::num_folds}};
}

const char* name_before(const Placing& placing) {
  return placing.options.from ? "from" : "contiguous";
}

Table quality_table(const Placing& placing) {
  const PlacementQuality& before = placing.result.before;
  const PlacementQuality& after = placing.result.after;
  Table table({"", name_before(placing), "placed"});
  const auto ratio = [&](const char* name, double PlacementQuality::*figure) {
    table.add({name, fixed(before.*figure), fixed(after.*figure)});
  };
  ratio("max/mean load, mean of layers", &PlacementQuality::max_over_mean_mean);
  ratio("max/mean load, worst layer", &PlacementQuality::max_over_mean_worst);
  ratio("mean/max load, mean of layers", &PlacementQuality::mean_over_max_mean);
  ratio("(max-mean)/mean, mean of layers", &PlacementQuality::relative_excess_mean);
  if (!after.traffic_known) return table;
  const auto share = [](double part, double whole) {
    return grouped(part) + (whole > 0 ? fmt::format(" ({:.1f} %)", 100 * part / whole) : "");
  };
  const auto part = [&](const char* name, double PlacementQuality::*figure) {
    table.add({name, share(before.*figure, before.total), share(after.*figure, after.total)});
  };
  part("crosses ranks", &PlacementQuality::crossing);
  if (placing.topology.num_nodes() > 1) {
    part("  within a node", &PlacementQuality::crossing_within);
    part("  between nodes", &PlacementQuality::crossing_across);
  }
  table.add({"worst pair, summed over exchanges", grouped(before.worst_pair), grouped(after.worst_pair)});
  return table;
}

void put_recordings(Page& page, const std::string& head, const char* before,
                    const std::vector<NamedQuality>& recordings) {
  if (recordings.empty()) return;
  Table table({head, fmt::format("{}: mean", before), "worst layer", "placed: mean", "worst layer"});
  const std::size_t shown = std::min(recordings.size(), kMostRecordings);
  for (const auto& [name, quality] : std::span(recordings).first(shown))
    table.add({name, fixed(quality.before.max_over_mean_mean), fixed(quality.before.max_over_mean_worst),
               fixed(quality.after.max_over_mean_mean), fixed(quality.after.max_over_mean_worst)});
  page.put(table);
  if (shown < recordings.size()) page.put("  and {} more, which --json has\n", recordings.size() - shown);
  page.put("\n");
}

// Prints how level the single steps are. A placement that is level over a whole recording may be uneven in
// each step.
void put_steps(Page& page, const Placing& placing) {
  if (placing.judged.steps.empty()) return;
  const std::string before = name_before(placing);
  Table table(
      {"max/mean load in a step", before + ": median", "p95", "worst", "placed: median", "p95", "worst"});
  const std::size_t shown = std::min(placing.judged.steps.size(), kMostRecordings);
  for (const auto& [name, was, is] : std::span(placing.judged.steps).first(shown))
    table.add({name, fixed(was.median), fixed(was.p95), fixed(was.worst), fixed(is.median), fixed(is.p95),
               fixed(is.worst)});
  page.put(table);
  page.put("\n");
}

Table copies_table(const CopyChoice& choice) {
  Table table({"redundant experts", "memory of experts", "max/mean load"});
  for (const auto& [copies, ratio, slots] : choice.tried)
    table.add({fmt::format("{}{}", copies, copies == choice.redundant_experts ? "  <- the knee" : ""),
               fmt::format("{:+.1f} %", 100 * (slots - 1)), fixed(ratio)});
  return table;
}

std::string meaning_of(const std::string& objective, const Placing& placing) {
  if (objective == "balance") return fmt::format("sum of |load - mean|, of {}", grouped(placing.assignments));
  if (objective == "joint_ms") return "predicted ms";
  if (objective == "max_over_mean") return "max/mean load, mean of layers";
  return placing.options.pairs == PairObjective::worst_pair ? "worst pair / (GB/s), summed over layers"
                                                            : "all pairs / (GB/s), summed over layers";
}

// The gap to the bound, as a share of the reached value. Empty for a bound of 0, where it would always be 100
// %.
std::string gap_of(double reached, double bound) {
  if (reached > 0 && bound <= 0) return "";
  return fmt::format("{:.2f} %", reached > 0 ? 100 * (reached - bound) / reached : 0.0);
}

void put_objectives(Page& page, const Placing& placing) {
  const PlaceResult& result = placing.result;
  Table table({"objective", "", "reached", "bound", "gap"});
  for (const auto& [name, value] : result.objective) {
    const double bound = result.bound.at(name);
    table.add({name, meaning_of(name, placing), fmt::format("{:.6g}", value), fmt::format("{:.6g}", bound),
               gap_of(value, bound)});
  }
  page.put(table);
  for (const auto& [name, problem] : result.bound_of) page.put("  bound of {}: {}\n", name, problem);
}

// The copies that the placement really has: an incremental placement can have a different number than
// requested.
std::string copies_of(const Placement& placement) {
  std::vector<int> copies;
  for (int layer = 0; layer < placement.num_layers(); ++layer) {
    copies.push_back(0);
    for (RankId rank : indices<RankId>(placement.num_ranks()))
      copies.back() += placement.layer(layer).num_copies(rank);
  }
  const auto [least, most] = std::ranges::minmax(copies);
  if (most == 0) return "";
  return least == most ? fmt::format(" and {} copies", most)
                       : fmt::format(" and {} to {} copies", least, most);
}

std::string shape_of(const Placing& placing) {
  const Topology& topology = placing.topology;
  const Placement& placement = placing.result.placement;
  return fmt::format("{} layers{} of {} experts{} on {} rank{} in {} node{}", placement.num_layers(),
                     placement.layers().known() ? fmt::format(" ({})", to_text(placement.layers())) : "",
                     placement.num_experts(), copies_of(placement), topology.num_ranks(),
                     topology.num_ranks() == 1 ? "" : "s", topology.num_nodes(),
                     topology.num_nodes() == 1 ? "" : "s");
}

// For several recordings, max/mean in the worst recording before and in the worst recording after. max/mean
// of the recordings' sum is not shown, because no real traffic looks like that sum.
std::string headline_of(const PlaceResult& result) {
  double before = result.before.max_over_mean_mean, after = result.after.max_over_mean_mean;
  if (!result.per_recording.empty()) before = after = 0;
  for (const RecordingQuality& each : result.per_recording) {
    before = std::max(before, each.before.max_over_mean_mean);
    after = std::max(after, each.after.max_over_mean_mean);
  }
  return fmt::format("max/mean load{} {:.3f} -> {:.3f}",
                     result.per_recording.empty() ? "" : " of the worst recording", before, after);
}

// max/mean of the median step: ranks wait for the heaviest rank in every step, not in the mean of steps. For
// several recordings, the worst recording before and the worst after.
std::string median_step_of(const std::vector<NamedSteps>& recordings) {
  if (recordings.empty()) return "";
  double before = 0, after = 0;
  for (const NamedSteps& each : recordings) {
    before = std::max(before, each.before.median);
    after = std::max(after, each.after.median);
  }
  return fmt::format(", of the median step {:.3f} -> {:.3f}", before, after);
}

std::string proof_of(const Placing& placing) {
  const PlaceResult& result = placing.result;
  if (!result.proven_optimal) return "";
  if (result.objective == result.bound) return ", proven optimal";
  return fmt::format(", proven within the gap of {} that was asked for", placing.options.limits.relative_gap);
}

void put_summary(Page& page, const Placing& placing) {
  const PlaceResult& result = placing.result;
  page.put("{}{}", headline_of(result), median_step_of(placing.judged.steps));
  if (result.after.traffic_known && result.before.crossing > 0)
    page.put(", traffic that crosses ranks {:.1f} % {}",
             100 * std::abs(1 - result.after.crossing / result.before.crossing),
             result.after.crossing <= result.before.crossing ? "less" : "more");
  page.put("\n{}; solver {}, {:.1f} ms{}\n", shape_of(placing), solver_name(result), result.solve_ms,
           proof_of(placing));
  if (!placing.output.empty()) page.put("written to {}\n", placing.output);
  page.put("\n");
}

// The max/mean load that a server would have if it were started with other options.
void put_served(Page& page, const Placing& placing) {
  if (placing.served.empty()) return;
  Table table({"SGLang started with", "--dispatch", "max/mean load"});
  table.add({"no all-to-all backend, or counts and our hook", "even", fixed(placing.served.at("even"))});
  table.add(
      {"--moe-a2a-backend, --ep-dispatch-algorithm static", "static", fixed(placing.served.at("static"))});
  table.add(
      {"--moe-a2a-backend, --ep-dispatch-algorithm dynamic", "nearest", fixed(placing.served.at("nearest"))});
  page.put(table);
  page.put("\n");
}

void put_held_out(Page& page, const Placing& placing) {
  if (!placing.held_out) return;
  page.put("  held out, {} folds of {} blocks: max/mean load {:.3f} -> {:.3f}\n", HeldOut::num_folds,
           placing.held_out->after.size(), placing.held_out->mean_before(), placing.held_out->mean_after());
}

void put_traffic(Page& page, const Placing& placing) {
  const PlaceResult& result = placing.result;
  if (!result.after.traffic_known) return;
  page.put("  traffic: {}\n", placing.options.traffic == TrafficModel::layer_to_layer
                                  ? "transitions of the profile, from one layer to the next"
                                  : "assignments of the profile, from the token's rank, one way");
  if (placing.topology.num_ranks() == 1) return;
  page.put("\n");
  page.put_lines(heat_maps(placing.topology, result.before.traffic, result.after.traffic,
                           printable(name_before(placing)), "placed"));
}

}  // namespace

std::string to_json(const Placing& placing) {
  const PlaceResult& result = placing.result;
  const Placement& placement = result.placement;
  Json after = json_of(result.after);
  after["notes"] = result.notes;
  Json json = {{"solver", solver_name(result)},
               {"num_layers", placement.num_layers()},
               {"layers", internal::numbers_or_null(placement.layers())},
               {"num_experts", placement.num_experts()},
               {"num_ranks", placing.topology.num_ranks()},
               {"objective", result.objective},
               {"bound", result.bound},
               {"proven_optimal", result.proven_optimal},
               {"solve_ms", result.solve_ms},
               {"before", json_of(result.before)},
               {"after", std::move(after)}};
  if (placing.options.dispatch != Dispatch::even) json["dispatch"] = name_of(placing.options.dispatch);
  if (placing.held_out) json["held_out"] = json_of(*placing.held_out);
  if (!placing.per_recording.empty()) json["per_recording"] = json_of(placing.per_recording);
  const JudgedPlacing& judged = placing.judged;
  if (!judged.judged.empty()) json["judged"] = json_of(judged.judged);
  if (!judged.steps.empty()) json["steps"] = json_of(judged.steps);
  if (!placing.served.empty()) json["served"] = placing.served;
  if (placing.copies) json["copies"] = json_of(*placing.copies);
  if (judged.verdict) json["verdict"] = internal::json_of(*judged.verdict);
  if (judged.judged_verdict) json["judged_verdict"] = internal::json_of(*judged.judged_verdict);
  if (json.contains("per_recording") || json.contains("judged"))
    json["measured_on"] = name_of(JudgedData::made_from);  // for all keys except `judged`
  return internal::line_of(std::move(json), placing.axes);
}

std::string to_text(const Placing& placing) {
  Page page;
  put_summary(page, placing);
  page.put(quality_table(placing));
  page.put("\n");
  if (placing.copies) {
    page.put(copies_table(*placing.copies));
    page.put("\n");
  }
  put_recordings(page, "max/mean load, made from", name_before(placing), placing.per_recording);
  put_recordings(page, "max/mean load, judged on", name_before(placing), placing.judged.judged);
  put_steps(page, placing);
  put_served(page, placing);
  put_objectives(page, placing);
  put_held_out(page, placing);
  put_traffic(page, placing);
  for (const auto* verdict : {&placing.judged.verdict, &placing.judged.judged_verdict}) {
    if (!*verdict) continue;
    page.put("\n");
    internal::put_verdict(page, **verdict);
  }
  for (const std::string& note : placing.result.notes) page.put("  note: {}\n", note);
  if (placing.judged.judged.empty())
    page.put(
        "  measured on the data it was made from; --judge FILE, or evenkeel evaluate, measures on other "
        "data\n");
  return std::move(page).text();
}

}  // namespace evenkeel
