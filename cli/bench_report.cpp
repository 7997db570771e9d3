#include "cli/bench_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/budget_options.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/run_report.h"
#include "evenkeel/report/table.h"

namespace evenkeel::cli {

namespace {

using Json = nlohmann::ordered_json;

std::string ratio(double value) {
  return value > 0 ? fmt::format("{:.2f}", value) : "-";
}

std::string planner_name(const CandidateFigures& of) {
  return std::string(name_of(of.candidate.planner.kind));
}

// "concentrated:" is the same in nearly every row.
std::string short_name(const BenchRow& row) {
  constexpr std::string_view common = "concentrated:";
  const std::string name =
      row.scenario.starts_with(common) ? row.scenario.substr(common.size()) : row.scenario;
  return row.value.empty() ? name : fmt::format("{}  {}", row.value, name);
}

Json json_of(const CandidateFigures& of, double ideal, double peak_ratio) {
  return {{"planner", name_of(of.candidate.planner.kind)},
          {"critical_ms", of.critical_ms},
          {"wall_ms", of.wall_ms},
          {"speedup", of.speedup},
          {"share_of_ideal", of.speedup / ideal},
          {"max_over_mean", of.balance.max_over_mean},
          {"plan_us", of.plan_us},
          {"peak_bytes", of.peak_bytes},
          {"peak_ratio", peak_ratio > 0 ? Json(peak_ratio) : Json(nullptr)},
          {"transfers", of.transfers},
          {"chunks", of.chunks},
          {"recomputed_fraction", of.recomputed_fraction}};
}

}  // namespace

std::string layer_of(const BenchSetup& setup) {
  const MoeShape shape = setup.layer.shape();
  return describe({shape, LayerPlacement::contiguous(shape.num_experts, static_cast<int>(setup.ranks)),
                   nullptr, nullptr, nullptr, setup.backward, 0});
}

void print_bench_head(const BenchPoint& point) {
  put("{}; {} tokens a rank, {} interleaved pairs, min-segment {}\n{}\n\n", layer_of(point.setup),
      point.setup.tokens, point.setup.pairs, point.setup.parameters.min_segment, kCriticalPath);
}

void print_bench_table(const Budget& budget, const std::vector<BenchRow>& rows) {
  std::vector<std::string> head = {
      rows.front().parameter.empty() ? "share:experts" : rows.front().parameter + "  share:experts", "ideal",
      "A/A", "peak ep"};
  for (const CandidateFigures& of : rows.front().figures.candidates) {
    head.insert(head.end(), {planner_name(of), "share", "peak", "moves"});
  }
  Table table(head);
  for (const BenchRow& row : rows) {
    const double ideal = row.figures.ideal_speedup();
    std::vector<std::string> cells = {short_name(row), fmt::format("{:.2f}x", ideal),
                                      fmt::format("+-{:.3f}", row.figures.control.spread),
                                      ratio(row.ep_peak_ratio)};
    for (std::size_t i = 0; i < row.figures.candidates.size(); ++i) {
      const CandidateFigures& of = row.figures.candidates[i];
      cells.insert(cells.end(),
                   {fmt::format("{:.2f}x", of.speedup), fmt::format("{:.0f} %", 100 * of.speedup / ideal),
                    ratio(row.peak_ratios[i]), fmt::format("{}", of.transfers)});
    }
    table.add(std::move(cells));
  }
  if (budget.cuts()) put("{}\n\n", describe(budget, rows.front().figures.reference.least_budget));
  print_text(table.text());
  put("  under a planner's name its speed-up over ep; share: of the ideal; A/A: spread of ep over itself\n"
      "  peak: the worst rank's bytes / the same planner's when balanced; moves: weight transfers\n");
}

void print_bench_json(const BenchPoint& point, const std::vector<BenchRow>& rows) {
  Json list = Json::array();
  for (const BenchRow& row : rows) {
    const double ideal = row.figures.ideal_speedup();
    Json planners = Json::array();
    for (std::size_t i = 0; i < row.figures.candidates.size(); ++i)
      planners.push_back(json_of(row.figures.candidates[i], ideal, row.peak_ratios[i]));
    Json one = {{"scenario", row.scenario}};
    if (!row.parameter.empty()) one[row.parameter] = row.value;
    one.update({{"ideal_speedup", ideal},
                {"control_ratio", row.figures.control.median},
                {"control_spread", row.figures.control.spread},
                {"ep", json_of(row.figures.reference, ideal, row.ep_peak_ratio)},
                {"planners", std::move(planners)}});
    list.push_back(std::move(one));
  }
  Json json = {{"ranks", point.setup.ranks}, {"tokens_per_rank", point.setup.tokens}};
  json.update(json_of(point.setup.budget, rows.front().figures.reference.least_budget));
  json.update({{"layer", layer_of(point.setup)}, {"pairs", point.setup.pairs}, {"rows", std::move(list)}});
  print_object(json);
}

void print_calibration(const Calibration& calibration, const std::string& file, bool json) {
  const CostModel& cost = calibration.cost;
  const MeasuredOn& on = calibration.on;
  if (json) {
    const Json all = {
        {"output", file},
        {"flops_per_second", cost.flops_per_second},
        {"weight_bytes_per_second", cost.weight_bytes_per_second},
        {"overlap", cost.overlap},
        {"link_bytes_per_second", cost.link_bytes_per_second},
        {"chunk_seconds", cost.chunk_seconds},
        {"measured_on", {{"cpu", on.cpu}, {"cores", on.cores}, {"ranks", on.ranks}, {"layer", on.layer}}}};
    print_object(all);
    return;
  }
  put("{}\n{} ranks on {} cores of {}\n\n", on.layer, on.ranks, on.cores, on.cpu);
  Table table({"products of many rows", fmt::format("{:.0f} GFLOP/s", 1e-9 * cost.flops_per_second)});
  table.add({"weights, where rows are few", fmt::format("{:.1f} GB/s", 1e-9 * cost.weight_bytes_per_second)});
  table.add({"hidden of the shorter of both", fmt::format("{:.0f} %", 100 * cost.overlap)});
  table.add({"weights from rank to rank", fmt::format("{:.1f} GB/s", 1e-9 * cost.link_bytes_per_second)});
  table.add({"one chunk more", fmt::format("{:.0f} us", 1e6 * cost.chunk_seconds)});
  put("{}written to {}\n", table.text(), file);
}

}  // namespace evenkeel::cli
