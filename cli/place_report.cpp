#include "cli/place_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "cli/output.h"
#include "evenkeel/report/heat_map.h"
#include "evenkeel/report/table.h"

namespace evenkeel::cli {

namespace {

using Json = nlohmann::ordered_json;

// In a table; of steps there may be thousands.
constexpr std::size_t kMostRecordings = 16;
// The data that figures were measured on.
constexpr const char* kOwnData = "the data it was made from";
constexpr const char* kOtherData = "data it was not made from";

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

std::string percent(double part, double whole) {
  return whole > 0 ? fmt::format(" ({:.1f} %)", 100 * part / whole) : "";
}

// Thousands apart; copies make fractions.
std::string amount(double value) {
  std::string digits = fmt::format("{:.0f}", value);
  for (std::size_t at = digits.size(); at > 3; at -= 3) digits.insert(at - 3, 1, ',');
  return digits;
}

void print_quality(const PlaceReport& report) {
  const PlacementQuality& before = report.result.before;
  const PlacementQuality& after = report.result.after;
  Table table({"", report.options.from ? "from" : "contiguous", "placed"});
  const auto ratio = [&](const char* name, double PlacementQuality::*figure) {
    table.add({name, fmt::format("{:.3f}", before.*figure), fmt::format("{:.3f}", after.*figure)});
  };
  ratio("max/mean load, mean of layers", &PlacementQuality::max_over_mean_mean);
  ratio("max/mean load, worst layer", &PlacementQuality::max_over_mean_worst);
  ratio("mean/max load, mean of layers", &PlacementQuality::mean_over_max_mean);
  ratio("(max-mean)/mean, mean of layers", &PlacementQuality::relative_excess_mean);
  if (after.traffic_known) {
    const auto part = [&](const std::string& name, double PlacementQuality::*figure) {
      table.add({name, amount(before.*figure) + percent(before.*figure, before.total),
                 amount(after.*figure) + percent(after.*figure, after.total)});
    };
    part("crosses ranks", &PlacementQuality::crossing);
    if (report.topology.num_nodes() > 1) {
      part("  within a node", &PlacementQuality::crossing_within);
      part("  between nodes", &PlacementQuality::crossing_across);
    }
    table.add({"worst pair, summed over exchanges", amount(before.worst_pair), amount(after.worst_pair)});
  }
  put("{}\n", table.text());
}

std::string meaning_of(const std::string& objective, const PlaceReport& report) {
  if (objective == "balance")
    return fmt::format("sum of |load - mean|, of {}", amount(static_cast<double>(report.assignments)));
  if (objective == "joint_ms") return "predicted ms";
  if (objective == "max_over_mean") return "max/mean load, mean of layers";
  return report.options.pairs == PairObjective::worst_pair ? "worst pair / (GB/s), summed over layers"
                                                           : "all pairs / (GB/s), summed over layers";
}

// A share of what was reached; beside a bound of 0 any would be all of it.
std::string gap_of(double reached, double bound) {
  if (reached > 0 && bound <= 0) return "";
  return fmt::format("{:.2f} %", reached > 0 ? 100 * (reached - bound) / reached : 0.0);
}

void print_recordings(const std::string& head, const char* before,
                      const std::vector<JudgedRecording>& recordings) {
  if (recordings.empty()) return;
  Table table({head, fmt::format("{}: mean", before), "worst layer", "placed: mean", "worst layer"});
  const std::size_t shown = std::min(recordings.size(), kMostRecordings);
  for (const auto& [file, quality] : std::span(recordings).first(shown))
    table.add({file, fmt::format("{:.3f}", quality.before.max_over_mean_mean),
               fmt::format("{:.3f}", quality.before.max_over_mean_worst),
               fmt::format("{:.3f}", quality.after.max_over_mean_mean),
               fmt::format("{:.3f}", quality.after.max_over_mean_worst)});
  put("{}", table.text());
  if (shown < recordings.size()) put("  and {} more, which --json has\n", recordings.size() - shown);
  put("\n");
}

Json json_of(const std::vector<JudgedRecording>& recordings) {
  Json list = Json::array();
  for (const auto& [file, quality] : recordings)
    list.push_back(
        {{"recording", file}, {"before", json_of(quality.before)}, {"after", json_of(quality.after)}});
  return list;
}

Json json_of(const VerdictReport& verdict, const char* measured_on) {
  Json json = json_of(verdict);
  json["measured_on"] = measured_on;
  return json;
}

Json json_of(const CopyChoice& choice) {
  Json tried = Json::array();
  for (const auto& [copies, ratio, slots] : choice.tried)
    tried.push_back({{"redundant_experts", copies}, {"max_over_mean", ratio}, {"slots", slots}});
  return {{"redundant_experts", choice.redundant_experts}, {"tried", std::move(tried)}};
}

void print_copies(const CopyChoice& choice) {
  Table table({"redundant experts", "memory of experts", "max/mean load"});
  for (const auto& [copies, ratio, slots] : choice.tried)
    table.add({fmt::format("{}{}", copies, copies == choice.redundant_experts ? "  <- the knee" : ""),
               fmt::format("{:+.1f} %", 100 * (slots - 1)), fmt::format("{:.3f}", ratio)});
  put("{}\n", table.text());
}

void print_objectives(const PlaceReport& report) {
  const PlaceResult& result = report.result;
  Table table({"objective", "", "reached", "bound", "gap"});
  for (const auto& [name, value] : result.objective) {
    const double bound = result.bound.at(name);
    table.add({name, meaning_of(name, report), fmt::format("{:.6g}", value), fmt::format("{:.6g}", bound),
               gap_of(value, bound)});
  }
  print_text(table.text());
  for (const auto& [name, problem] : result.bound_of) put("  bound of {}: {}\n", name, problem);
}

void print_verdict_on(const char* data, const std::optional<VerdictReport>& verdict) {
  if (!verdict) return;
  put("\n  on {}:\n", data);
  print_verdict(*verdict);
}

// The copies are counted: a placement that was moved need not have those that were asked for.
std::string copies_of(const PlaceReport& report) {
  int most = 0;
  int least = std::numeric_limits<int>::max();
  for (int layer = 0; layer < report.result.placement.num_layers(); ++layer) {
    const LayerPlacement& homes = report.result.placement.layer(layer);
    int copies = -homes.num_experts();
    for (RankId rank : indices<RankId>(homes.num_ranks()))
      copies += static_cast<int>(homes.natives(rank).size());
    most = std::max(most, copies);
    least = std::min(least, copies);
  }
  if (most == 0) return "";
  return least == most ? fmt::format(" and {} copies", most)
                       : fmt::format(" and {} to {} copies", least, most);
}

std::string shape_of(const PlaceReport& report) {
  const Topology& topology = report.topology;
  return fmt::format("{} layers{} of {} experts{} on {} rank{} in {} node{}", report.num_layers,
                     report.layers.known() ? fmt::format(" ({})", to_text(report.layers)) : "",
                     report.num_experts, copies_of(report), topology.num_ranks(),
                     topology.num_ranks() == 1 ? "" : "s", topology.num_nodes(),
                     topology.num_nodes() == 1 ? "" : "s");
}

}  // namespace

void print_json(const PlaceReport& report) {
  const PlaceResult& result = report.result;
  Json after = json_of(result.after);
  after["notes"] = result.notes;
  const Json layers = report.layers.known() ? Json(report.layers.numbers()) : Json(nullptr);
  Json json = {{"solver", solver_name(result)},
               {"num_layers", report.num_layers},
               {"layers", layers},
               {"num_experts", report.num_experts},
               {"num_ranks", report.topology.num_ranks()},
               {"objective", result.objective},
               {"bound", result.bound},
               {"proven_optimal", result.proven_optimal},
               {"solve_ms", result.solve_ms},
               {"before", json_of(result.before)},
               {"after", std::move(after)}};
  if (!report.per_recording.empty()) json["per_recording"] = json_of(report.per_recording);
  if (!report.judged.empty()) json["judged"] = json_of(report.judged);
  if (report.copies) json["copies"] = json_of(*report.copies);
  if (report.verdict) json["verdict"] = json_of(*report.verdict, kOwnData);
  if (report.judged_verdict) json["judged_verdict"] = json_of(*report.judged_verdict, kOtherData);
  if (json.contains("per_recording") || json.contains("judged"))
    json["measured_on"] = kOwnData;  // all but what was judged
  print_object(json);
}

// Of several recordings the worst before and the worst after: no traffic has the mean of their sum.
std::pair<double, double> headline_of(const PlaceResult& result) {
  if (result.per_recording.empty())
    return {result.before.max_over_mean_mean, result.after.max_over_mean_mean};
  std::pair<double, double> worst = {0, 0};
  for (const RecordingQuality& each : result.per_recording) {
    worst.first = std::max(worst.first, each.before.max_over_mean_mean);
    worst.second = std::max(worst.second, each.after.max_over_mean_mean);
  }
  return worst;
}

void print_table(const PlaceReport& report) {
  const PlaceResult& result = report.result;
  const auto [before_mean, after_mean] = headline_of(result);
  put("max/mean load{} {:.3f} -> {:.3f}", result.per_recording.empty() ? "" : " of the worst recording",
      before_mean, after_mean);
  if (result.after.traffic_known && result.before.crossing > 0)
    put(", traffic that crosses ranks {:.1f} % {}",
        100 * std::abs(1 - result.after.crossing / result.before.crossing),
        result.after.crossing <= result.before.crossing ? "less" : "more");
  const char* end = result.proven_optimal ? ", proven optimal" : "";
  put("\n{}; solver {}, {:.1f} ms{}\n{}\n", shape_of(report), solver_name(result), result.solve_ms, end,
      report.output.empty() ? "" : fmt::format("written to {}\n", report.output));
  print_quality(report);
  if (report.copies) print_copies(*report.copies);
  const char* before = report.options.from ? "from" : "contiguous";
  print_recordings("max/mean load, made from", before, report.per_recording);
  print_recordings("max/mean load, judged on", before, report.judged);
  print_objectives(report);
  const bool layers = report.options.traffic == TrafficModel::layer_to_layer;
  if (result.after.traffic_known) {
    put("  traffic: {}\n", layers ? "transitions of the profile, from one layer to the next"
                                  : "assignments of the profile, from the token's rank, one way");
    if (report.topology.num_ranks() > 1)
      put("\n{}", heat_maps(report.topology, result.before.traffic, result.after.traffic,
                            report.options.from ? "from" : "contiguous", "placed"));
  }
  print_verdict_on(kOwnData, report.verdict);
  print_verdict_on(kOtherData, report.judged_verdict);
  for (const std::string& note : result.notes) put("  note: {}\n", note);
  if (report.judged.empty())
    put("  measured on the data it was made from; --judge FILE, or evenkeel evaluate, measures on other "
        "data\n");
}

}  // namespace evenkeel::cli
