// Reports step time over memory budget (`evenkeel bench --over-budget`).
#include <fmt/format.h>

#include <algorithm>

#include "evenkeel/base/bytes.h"
#include "evenkeel/report/internal/figures.h"
#include "evenkeel/report/internal/numbers.h"
#include "evenkeel/report/study_report.h"

namespace evenkeel {

namespace {

using internal::Json;
using internal::Page;

// A percentage; small ones get a decimal.
std::string fine_percent(double share) {
  return share < 0.0995 ? fmt::format("{:.1f} %", 100 * share) : internal::percent(share);
}

std::string name_of_row(const CurveRow& row) {
  const Budget& budget = row.candidate.budget;
  std::string name(name_of(row.candidate.planner.kind));
  if (budget.memory.recompute == Recompute::whole) return name + ", whole";
  return budget.is_given() && !row.requested ? name + ", ample" : name;
}

std::vector<std::string> cells_of(const CurveRow& row, const Curve& curve) {
  const Budget& budget = row.candidate.budget;
  std::vector<std::string> cells = {name_of_row(row), budget.is_given() ? format_bytes(budget.bytes) : "none",
                                    budget.is_given() ? fine_percent(curve.share_of_ep(budget.bytes)) : ""};
  if (!row.figures) {
    cells.insert(cells.end(), {"-", "", "", "too small"});
    return cells;
  }
  const CandidateFigures& of = *row.figures;
  cells.insert(
      cells.end(),
      {fmt::format("{:.3f}", of.time.median), fmt::format("{:.3f}-{:.3f}", of.time.low, of.time.high),
       fmt::format("{:.3f}", row.control.spread), format_bytes(of.worst_peak_bytes()),
       fine_percent(curve.share_of_ep(of.worst_peak_bytes())), fmt::format("{}", of.chunks),
       internal::percent(of.recomputed_fraction), fmt::format("{}", of.transfers)});
  return cells;
}

// The planner's rows for the requested budgets.
void put_picture(Page& page, const Curve& curve) {
  constexpr int width = 60;
  constexpr double precision = 1e6;
  std::vector<const CurveRow*> rows;
  double most = 1;
  for (const CurveRow& row : curve.rows) {
    if (!row.requested || !row.figures || row.candidate.is_plain()) continue;
    rows.push_back(&row);
    most = std::max(most, row.figures->time.median);
  }
  if (rows.empty()) return;
  page.put("\n  {}: budget as a share of ep's peak, and its time / its time without a budget\n",
           internal::planner_of(curve.reference));
  const auto in_parts = [&](double ratio) { return static_cast<std::int64_t>(ratio * precision); };
  for (const CurveRow* row : rows) {
    const double ratio = row->figures->time.median;
    page.put("  {:>6}  {} {:.3f}\n", fine_percent(curve.share_of_ep(row->candidate.budget.bytes)),
             bar(in_parts(ratio), in_parts(most), width), ratio);
  }
}

void put_curve(Page& page, const Curve& curve) {
  const CandidateFigures& reference = curve.reference;
  page.put("\n{}: ideal {:.2f}x; ep takes {} unbounded; least budget {}\n", curve.scenario,
           curve.ep.balance.max_over_mean, format_bytes(curve.ep.worst_peak_bytes()),
           format_bytes(reference.least_budget));
  Table table({"", "budget", "of ep", "time", "95 %", "A/A", "peak", "of ep", "chunks", "again", "moves"});
  table.add({internal::planner_of(reference), "none", "", "1", "", "",
             format_bytes(reference.worst_peak_bytes()),
             fine_percent(curve.share_of_ep(reference.worst_peak_bytes())), "1", "0 %",
             fmt::format("{}", reference.transfers)});
  for (const CurveRow& row : curve.rows) table.add(cells_of(row, curve));
  page.put(table);
  put_picture(page, curve);
}

Json json_of_row(const CurveRow& row, const Curve& curve) {
  const Budget& budget = row.candidate.budget;
  const bool given = budget.is_given();
  Json json = {{"planner", name_of(row.candidate.planner.kind)},
               {"budget", given ? Json(budget.bytes) : Json(nullptr)},
               {"budget_share", given ? Json(curve.share_of_ep(budget.bytes)) : Json(nullptr)},
               {"recompute", name_of(budget.memory.recompute)},
               {"asked", row.requested},
               {"least_budget", row.least_budget},
               {"fits", row.figures.has_value()}};
  if (!row.figures) return json;
  const CandidateFigures& of = *row.figures;
  json.update(
      internal::json_of(of, {"time_ratio", "time_spread", "time_interval", "cpu_ratio", "cpu_interval"}));
  json.update(internal::json_of_control(row.control));
  json.update(internal::json_of(
      of, {"critical_ms", "spilled", "reason", "transfers", "chunks", "recomputed_fraction", "peak_bytes"}));
  json["peak_share"] = curve.share_of_ep(of.worst_peak_bytes());
  return json;
}

Json json_of_curve(const Curve& curve) {
  Json reference = internal::json_of(curve.reference, {"planner", "critical_ms", "transfers", "peak_bytes"});
  reference["peak_share"] = curve.share_of_ep(curve.reference.worst_peak_bytes());
  Json rows = Json::array();
  for (const CurveRow& row : curve.rows) rows.push_back(json_of_row(row, curve));
  return {{"scenario", curve.scenario},
          {"ideal_speedup", curve.ep.balance.max_over_mean},
          {"ep_peak_bytes", curve.ep.peak_bytes},
          {"reference", std::move(reference)},
          {"rows", std::move(rows)}};
}

}  // namespace

std::string to_text(const Curves& curves) {
  const StudySetup& setup = curves.setup;
  Page page;
  page.put("{}\n{} tokens a rank, {}, min-segment {}\n{}\n", internal::layer_line(setup), setup.tokens,
           internal::counted(setup.pairs, "round", "rounds"), setup.planners.front().min_segment,
           internal::kCriticalPath);
  for (const Curve& curve : curves.scenarios) put_curve(page, curve);
  page.put(
      "\n  time: critical path / the first row's, median; A/A: spread of that row over itself\n"
      "  95 %: bounds of the median at 95 % confidence, from 6 rounds on\n"
      "  of ep: share of its worst rank's peak without a budget; again: assignments recomputed in backward\n"
      "  whole: the whole step recomputed at once, unchunked; moves: weight transfers\n");
  return std::move(page).text();
}

std::string to_json(const Curves& curves) {
  Json json = internal::json_of(curves.setup);
  json["least_budget"] = curves.scenarios.front().reference.least_budget;
  for (const Curve& curve : curves.scenarios) json["scenarios"].push_back(json_of_curve(curve));
  return internal::line_of(json);
}

}  // namespace evenkeel
