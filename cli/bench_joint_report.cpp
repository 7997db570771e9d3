#include "cli/bench_joint_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/bench_report.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/run_report.h"
#include "evenkeel/base/bytes.h"
#include "evenkeel/report/table.h"

namespace evenkeel::cli {

namespace {

using Json = nlohmann::ordered_json;

double share(const JointRow& row) {
  return static_cast<double>(row.budget) / static_cast<double>(row.ep_peak);
}

std::string short_name(const std::string& scenario) {
  constexpr std::string_view common = "concentrated:";
  return scenario.starts_with(common) ? scenario.substr(common.size()) : scenario;
}

std::string ratio(double of, bool is_same) {
  return is_same ? "same" : fmt::format("{:.3f}", of);
}

std::vector<std::string> cells_of(const JointRow& row) {
  std::vector<std::string> cells = {short_name(row.scenario), format_bytes(row.budget),
                                    fmt::format("{:.1f} %", 100 * share(row))};
  if (!row.figures) {
    cells.emplace_back("too small");
    return cells;
  }
  const CandidateFigures& joint = row.joint();
  const std::string spill_chunks = row.gave_up() ? "-" : fmt::format("{}", row.spill().chunks);
  cells.insert(
      cells.end(),
      {fmt::format("{}/{}/{}", joint.chunks, spill_chunks, row.chunks().chunks),
       fmt::format("{:.0f} %", 100 * joint.recomputed_fraction), fmt::format("{}", joint.transfers),
       row.gave_up() ? "no fit" : ratio(row.to_spill(), row.is_spill), ratio(row.to_chunks(), row.is_chunks),
       fmt::format("{:.3f}", row.to_best()), fmt::format("+-{:.3f}", row.figures->control.spread)});
  return cells;
}

Json json_of(const CandidateFigures& of) {
  return {{"critical_ms", of.critical_ms},
          {"chunks", of.chunks},
          {"recomputed_fraction", of.recomputed_fraction},
          {"transfers", of.transfers},
          {"peak_bytes", of.peak_bytes}};
}

Json json_of(const JointRow& row) {
  Json json = {{"scenario", row.scenario},
               {"budget", row.budget},
               {"budget_share", share(row)},
               {"least_budget", row.least_budget},
               {"fits", row.figures.has_value()}};
  if (!row.figures) return json;
  json.update({{"control_ratio", row.figures->control.median},
               {"control_spread", row.figures->control.spread},
               {"to_spill", row.to_spill()},
               {"to_chunks", row.to_chunks()},
               {"to_best", row.to_best()},
               {"spill_fits", !row.gave_up()},
               {"is_spill", row.is_spill},
               {"is_chunks", row.is_chunks},
               {"joint", json_of(row.joint())},
               {"spill", json_of(row.spill())},
               {"chunks", json_of(row.chunks())}});
  return json;
}

// The row where joint is slowest against the best of both; nothing where no budget fits.
const JointRow* worst_of(const std::vector<JointRow>& rows) {
  const JointRow* worst = nullptr;
  for (const JointRow& row : rows)
    if (row.figures && (worst == nullptr || row.to_best() > worst->to_best())) worst = &row;
  return worst;
}

}  // namespace

void print_joint(const JointSetup& setup, const std::vector<JointRow>& rows) {
  put("{}\n{} tokens a rank, {} rounds, min-segment {}, {}\n{}\n\n", layer_of(setup.bench),
      setup.bench.tokens, setup.bench.pairs, setup.planner.min_segment, name_of(setup.planner.kind),
      kCriticalPath);
  Table table({"share:experts", "budget", "of ep", "chunks", "again", "moves", "to spill", "to ep", "to best",
               "A/A"});
  for (const JointRow& row : rows) table.add(cells_of(row));
  print_text(table.text());
  if (const JointRow* const worst = worst_of(rows))
    put("\n  slowest against the best of both: {:.3f}, {} in {}\n", worst->to_best(),
        short_name(worst->scenario), format_bytes(worst->budget));
  put("\n  chunks: of the joint choice, of spill kept wherever it fits, of ep; again: assignments computed\n"
      "  again in backward; moves: weight transfers (both of the joint choice); to spill, to ep: critical\n"
      "  path / theirs, medians in the same budget; same: joint chose that very step; to best: the larger;\n"
      "  A/A: spread of joint over itself\n");
}

void print_joint_json(const JointSetup& setup, const std::vector<JointRow>& rows) {
  Json list = Json::array();
  for (const JointRow& row : rows) list.push_back(json_of(row));
  const JointRow* const worst = worst_of(rows);
  const Json json = {{"ranks", setup.bench.ranks},
                     {"tokens_per_rank", setup.bench.tokens},
                     {"layer", layer_of(setup.bench)},
                     {"pairs", setup.bench.pairs},
                     {"planner", name_of(setup.planner.kind)},
                     {"worst_to_best", worst == nullptr ? Json(nullptr) : Json(worst->to_best())},
                     {"rows", std::move(list)}};
  print_object(json);
}

}  // namespace evenkeel::cli
