#include "cli/bench_curve_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "cli/bench_report.h"
#include "cli/budget_options.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/run_report.h"
#include "evenkeel/base/bytes.h"
#include "evenkeel/report/table.h"

namespace evenkeel::cli {

namespace {

using Json = nlohmann::ordered_json;

double share_of(std::int64_t bytes, const Curve& curve) {
  return static_cast<double>(bytes) / static_cast<double>(curve.ep.worst_peak_bytes());
}

std::string percent(double share) {
  return share < 0.0995 ? fmt::format("{:.1f} %", 100 * share) : fmt::format("{:.0f} %", 100 * share);
}

Json bytes_or_null(const Budget& budget) {
  return budget.is_given() ? Json(budget.bytes) : Json(nullptr);
}

Json json_of(const CurveRow& row, const Curve& curve) {
  const Budget& budget = row.candidate.budget;
  Json json = {{"planner", name_of(row.candidate.planner.kind)},
               {"budget", bytes_or_null(budget)},
               {"budget_share", budget.is_given() ? Json(share_of(budget.bytes, curve)) : Json(nullptr)},
               {"recompute", name_of(budget.memory.recompute)},
               {"asked", row.asked},
               {"least_budget", row.least_budget},
               {"fits", row.figures.has_value()}};
  if (!row.figures) return json;
  const CandidateFigures& of = *row.figures;
  json.update({{"time_ratio", of.time.median},
               {"time_spread", of.time.spread},
               {"time_interval", Json::array({of.time.low, of.time.high})},
               {"cpu_ratio", of.cpu.median},
               {"cpu_interval", Json::array({of.cpu.low, of.cpu.high})},
               {"control_ratio", row.control.median},
               {"control_spread", row.control.spread},
               {"critical_ms", of.critical_ms},
               {"spilled", of.transfers > 0},
               {"transfers", of.transfers},
               {"chunks", of.chunks},
               {"recomputed_fraction", of.recomputed_fraction},
               {"peak_bytes", of.peak_bytes},
               {"peak_share", share_of(of.worst_peak_bytes(), curve)}});
  return json;
}

std::string interval(const RoundRatio& ratio) {
  return fmt::format("{:.3f}-{:.3f}", ratio.low, ratio.high);
}

std::vector<std::string> cells_of(const CurveRow& row, const Curve& curve) {
  const Budget& budget = row.candidate.budget;
  std::vector<std::string> cells = {row.name, budget.is_given() ? format_bytes(budget.bytes) : "none",
                                    budget.is_given() ? percent(share_of(budget.bytes, curve)) : ""};
  if (!row.figures) {
    cells.insert(cells.end(), {"-", "", "", "too small"});
    return cells;
  }
  const CandidateFigures& of = *row.figures;
  cells.insert(cells.end(),
               {fmt::format("{:.3f}", of.time.median), interval(of.time),
                fmt::format("{:.3f}", row.control.spread), format_bytes(of.worst_peak_bytes()),
                percent(share_of(of.worst_peak_bytes(), curve)), fmt::format("{}", of.chunks),
                fmt::format("{:.0f} %", 100 * of.recomputed_fraction), fmt::format("{}", of.transfers)});
  return cells;
}

// The planner's rows under the budgets asked for.
void print_picture(const Curve& curve) {
  constexpr int width = 60;
  constexpr double precision = 1e6;
  std::vector<const CurveRow*> rows;
  double most = 1;
  for (const CurveRow& row : curve.rows) {
    if (!row.asked || !row.figures || row.candidate.is_plain()) continue;
    rows.push_back(&row);
    most = std::max(most, row.figures->time.median);
  }
  if (rows.empty()) return;
  put("\n  {} in so much of ep's peak, and its time / its time without a budget\n",
      name_of(curve.reference.candidate.planner.kind));
  const auto in_parts = [&](double ratio) { return static_cast<std::int64_t>(ratio * precision); };
  for (const CurveRow* row : rows) {
    const double ratio = row->figures->time.median;
    put("  {:>6}  {} {:.3f}\n", percent(share_of(row->candidate.budget.bytes, curve)),
        bar(in_parts(ratio), in_parts(most), width), ratio);
  }
}

void print_curve(const Curve& curve) {
  put("{}: ideal {:.2f}x; ep takes {} unbounded; least budget {}\n", curve.scenario,
      curve.ep.balance.max_over_mean, format_bytes(curve.ep.worst_peak_bytes()),
      format_bytes(curve.reference.least_budget));
  Table table({"", "budget", "of ep", "time", "95 %", "A/A", "peak", "of ep", "chunks", "again", "moves"});
  table.add({std::string(name_of(curve.reference.candidate.planner.kind)), "none", "", "1", "", "",
             format_bytes(curve.reference.worst_peak_bytes()),
             percent(share_of(curve.reference.worst_peak_bytes(), curve)), "1", "0 %",
             fmt::format("{}", curve.reference.transfers)});
  for (const CurveRow& row : curve.rows) table.add(cells_of(row, curve));
  print_text(table.text());
  print_picture(curve);
}

}  // namespace

void print_curves(const CurveSetup& setup, const std::vector<Curve>& curves) {
  put("{}\n{} tokens a rank, {} rounds, min-segment {}\n{}\n", layer_of(setup.bench), setup.bench.tokens,
      setup.bench.pairs, setup.planner.min_segment, kCriticalPath);
  for (const Curve& curve : curves) {
    put("\n");
    print_curve(curve);
  }
  put("\n  time: critical path / that of the first row, medians; A/A: spread of that row over itself\n"
      "  95 %: the median lies there, with so much confidence from 6 rounds on\n"
      "  of ep: of its worst rank's peak without a budget; again: assignments computed again in backward\n"
      "  whole: all of the step computed again at once, unchunked; moves: weight transfers\n");
}

void print_curves_json(const CurveSetup& setup, const std::vector<Curve>& curves) {
  Json scenarios = Json::array();
  for (const Curve& curve : curves) {
    Json rows = Json::array();
    for (const CurveRow& row : curve.rows) rows.push_back(json_of(row, curve));
    scenarios.push_back({{"scenario", curve.scenario},
                         {"ideal_speedup", curve.ep.balance.max_over_mean},
                         {"ep_peak_bytes", curve.ep.peak_bytes},
                         {"reference",
                          {{"planner", name_of(curve.reference.candidate.planner.kind)},
                           {"critical_ms", curve.reference.critical_ms},
                           {"transfers", curve.reference.transfers},
                           {"peak_bytes", curve.reference.peak_bytes},
                           {"peak_share", share_of(curve.reference.worst_peak_bytes(), curve)}}},
                         {"rows", std::move(rows)}});
  }
  const Json json = {{"ranks", setup.bench.ranks},
                     {"tokens_per_rank", setup.bench.tokens},
                     {"layer", layer_of(setup.bench)},
                     {"pairs", setup.bench.pairs},
                     {"least_budget", curves.front().reference.least_budget},
                     {"scenarios", std::move(scenarios)}};
  print_object(json);
}

}  // namespace evenkeel::cli
