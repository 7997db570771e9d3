// Spill and chunks together against either alone, of `evenkeel bench --joint`.
#include <fmt/format.h>

#include "evenkeel/base/bytes.h"
#include "evenkeel/report/internal/figures.h"
#include "evenkeel/report/internal/numbers.h"
#include "evenkeel/report/study_report.h"

namespace evenkeel {

namespace {

using internal::Json;
using internal::Page;

double share(const JointRow& row) {
  return static_cast<double>(row.budget) / static_cast<double>(row.ep_peak);
}

std::string ratio_or_same(double of, bool is_same) {
  return is_same ? "same" : fmt::format("{:.3f}", of);
}

std::vector<std::string> cells_of(const JointRow& row) {
  std::vector<std::string> cells = {internal::short_name(row.scenario), format_bytes(row.budget),
                                    fmt::format("{:.1f} %", 100 * share(row))};
  if (!row.figures) {
    cells.emplace_back("too small");
    return cells;
  }
  const CandidateFigures& joint = row.joint();
  const std::string spill_chunks = row.gave_up() ? "-" : fmt::format("{}", row.spill().chunks);
  cells.insert(cells.end(),
               {fmt::format("{}/{}/{}", joint.chunks, spill_chunks, row.chunks().chunks),
                internal::percent(joint.recomputed_fraction), fmt::format("{}", joint.transfers),
                row.gave_up() ? "no fit" : ratio_or_same(row.to_spill(), row.is_spill),
                ratio_or_same(row.to_chunks(), row.is_chunks), fmt::format("{:.3f}", row.to_best()),
                fmt::format("+-{:.3f}", row.figures->control.spread)});
  return cells;
}

Json json_of_candidate(const CandidateFigures& of) {
  return internal::json_of(of, {"critical_ms", "chunks", "recomputed_fraction", "transfers", "peak_bytes"});
}

Json json_of_row(const JointRow& row) {
  Json json = {{"scenario", row.scenario},
               {"budget", row.budget},
               {"budget_share", share(row)},
               {"least_budget", row.least_budget},
               {"fits", row.figures.has_value()}};
  if (!row.figures) return json;
  json.update(internal::json_of_control(row.figures->control));
  json.update({{"to_spill", row.to_spill()},
               {"to_chunks", row.to_chunks()},
               {"to_best", row.to_best()},
               {"spill_fits", !row.gave_up()},
               {"is_spill", row.is_spill},
               {"is_chunks", row.is_chunks},
               {"joint", json_of_candidate(row.joint())},
               {"spill", json_of_candidate(row.spill())},
               {"chunks", json_of_candidate(row.chunks())}});
  return json;
}

}  // namespace

std::string to_text(const JointTable& table) {
  const StudySetup& setup = table.setup;
  const PlannerOptions& planner = setup.planners.front();
  Page page;
  page.put("{}\n{} tokens a rank, {}, min-segment {}, {}\n{}\n\n", internal::layer_line(setup), setup.tokens,
           internal::counted(setup.pairs, "round", "rounds"), planner.min_segment, name_of(planner.kind),
           internal::kCriticalPath);
  Table rows({"share:experts", "budget", "of ep", "chunks", "again", "moves", "to spill", "to ep", "to best",
              "A/A"});
  for (const JointRow& row : table.rows) rows.add(cells_of(row));
  page.put(rows);
  if (const JointRow* const worst = table.worst())
    page.put("\n  slowest against the best of both: {:.3f}, {} in {}\n", worst->to_best(),
             internal::short_name(worst->scenario), format_bytes(worst->budget));
  page.put(
      "\n  chunks: of the joint choice, of spill kept wherever it fits, of ep; again: assignments computed\n"
      "  again in backward; moves: weight transfers (both of the joint choice); to spill, to ep: critical\n"
      "  path / theirs, medians in the same budget; same: joint chose that very step; to best: the larger;\n"
      "  A/A: spread of joint over itself\n");
  return std::move(page).text();
}

std::string to_json(const JointTable& table) {
  const JointRow* const worst = table.worst();
  Json json = internal::json_of(table.setup);
  json["planner"] = name_of(table.setup.planners.front().kind);
  json["worst_to_best"] = worst == nullptr ? Json(nullptr) : Json(worst->to_best());
  json["rows"] = Json::array();
  for (const JointRow& row : table.rows) json["rows"].push_back(json_of_row(row));
  return internal::line_of(json);
}

}  // namespace evenkeel
