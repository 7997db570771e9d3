#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

#include "benchmarks/joint_study/studies.h"
#include "evenkeel/base/bytes.h"
#include "evenkeel/base/error.h"
#include "evenkeel/report/table.h"

namespace evenkeel::study {

namespace {

struct Row {
  std::string scenario;
  std::int64_t budget = 0;
  std::int64_t ep_peak = 0;  // the worst rank's peak without a budget
  std::int64_t least_budget = 0;
  std::int64_t free_transfers = 0;  // transfers of the planner's plan without a budget
  // The reference is joint; the candidates are spill and chunks. Empty if the budget is below the least
  // possible one. A candidate whose step is exactly joint's gets joint's measurement.
  std::optional<Figures> figures;
  bool is_spill = false;
  bool is_chunks = false;

  double share() const { return static_cast<double>(budget) / static_cast<double>(ep_peak); }
  const CandidateFigures& joint() const { return figures->reference; }
  const CandidateFigures& spill() const { return figures->candidates[0]; }
  const CandidateFigures& chunks() const { return figures->candidates[1]; }
  // Whether the planner's plan did not fit, so that `spill` is plain ep.
  bool gave_up() const { return free_transfers > 0 && spill().transfers == 0; }
  // Medians over rounds: joint's critical path / the other's.
  double to_spill() const { return spill().speedup; }
  double to_chunks() const { return chunks().speedup; }
  // Joint against the faster of the two candidates.
  double to_best() const { return std::max(to_spill(), to_chunks()); }
};

// Whether two candidates' steps are the same in everything but time.
bool is_same_step(const CandidateFigures& a, const CandidateFigures& b) {
  const auto told_by = [](const CandidateFigures& of) {
    return std::tie(of.rank_loads, of.peak_bytes, of.transfers, of.chunks, of.recomputed_fraction,
                    of.dispatch_bytes, of.combine_bytes, of.transfer_bytes);
  };
  return told_by(a) == told_by(b);
}

class Measurement {
 public:
  Measurement(const StudySetup& setup, const NamedProgress& progress)
      : setup_(setup), progress_(progress), inputs_(seeded_inputs(setup, setup.tokens * setup.ranks)) {}

  std::vector<Row> take(const std::vector<Batch>& batches,
                        const std::vector<RequestedBudget>& budgets) const {
    std::vector<Row> rows;
    const std::vector<Figures> free = measured_free(batches);
    for (std::size_t i = 0; i < batches.size(); ++i)
      for (const RequestedBudget& asked : budgets) {
        const CandidateFigures& spilled = free[i].candidates.front();
        const std::int64_t ep_peak = free[i].reference.worst_peak_bytes();
        rows.push_back({batches[i].name, asked.bytes_of(ep_peak), ep_peak, spilled.least_budget,
                        spilled.transfers, std::nullopt});
        try {
          measure_row(batches[i], rows.back());
        } catch (const BudgetTooSmall&) {  // the table's row says so
        }
      }
    return rows;
  }

 private:
  // Set-up for figures that do not depend on time: one round without warm-up.
  ExperimentSetup once(const Candidate& reference, std::vector<Candidate> candidates) const {
    ExperimentSetup experiment = experiment_of(setup_, inputs_, reference, std::move(candidates), 1);
    experiment.warm_ups = 0;
    return experiment;
  }

  // Runs without a budget, to find the bytes of plain ep and whether the planner spills.
  std::vector<Figures> measured_free(const std::vector<Batch>& batches) const {
    return measure(once(plain_ep(), {{setup_.planners.front(), {}}}), batches, {}, progress_("no budget"));
  }

  void measure_row(const Batch& batch, Row& row) const {
    Budget joint = setup_.budget;
    joint.bytes = row.budget;
    Budget spill = joint;
    spill.memory.keep_plan = true;
    const PlannerOptions& planner = setup_.planners.front();
    const Candidate reference{planner, joint}, spilled{planner, spill}, chunked = plain_ep(joint);
    const std::string what = fmt::format("{} in {}", batch.name, format_bytes(row.budget));
    const Figures alike = measure(once(reference, {spilled, chunked}), batch, progress_(what + ", once"));
    row.is_spill = is_same_step(alike.reference, alike.candidates[0]);
    row.is_chunks = is_same_step(alike.reference, alike.candidates[1]);
    // A candidate with the reference's step is not measured again, since any difference would be noise.
    std::vector<Candidate> others;
    if (!row.is_spill) others.push_back(spilled);
    if (!row.is_chunks) others.push_back(chunked);
    Figures figures =
        measure(experiment_of(setup_, inputs_, reference, others, setup_.pairs), batch, progress_(what));
    if (row.is_spill) figures.candidates.insert(figures.candidates.begin(), figures.reference);
    if (row.is_chunks) figures.candidates.push_back(figures.reference);
    row.figures = std::move(figures);
  }

  const StudySetup& setup_;
  const NamedProgress& progress_;
  LayerInputs inputs_;
};

// The row in which joint is slowest relative to the faster candidate; null if no budget fits.
const Row* worst_of(const std::vector<Row>& rows) {
  const Row* worst = nullptr;
  for (const Row& row : rows)
    if (row.figures && (worst == nullptr || row.to_best() > worst->to_best())) worst = &row;
  return worst;
}

// Drops "concentrated:", which nearly every row has.
std::string short_name(const std::string& scenario) {
  constexpr std::string_view common = "concentrated:";
  return scenario.starts_with(common) ? scenario.substr(common.size()) : scenario;
}

std::string ratio_or_same(double of, bool is_same) {
  return is_same ? "same" : fmt::format("{:.3f}", of);
}

std::vector<std::string> cells_of(const Row& row) {
  std::vector<std::string> cells = {short_name(row.scenario), format_bytes(row.budget),
                                    fmt::format("{:.1f} %", 100 * row.share())};
  if (!row.figures) {
    cells.emplace_back("too small");
    return cells;
  }
  const CandidateFigures& joint = row.joint();
  const std::string spill_chunks = row.gave_up() ? "-" : fmt::format("{}", row.spill().chunks);
  cells.insert(cells.end(),
               {fmt::format("{}/{}/{}", joint.chunks, spill_chunks, row.chunks().chunks),
                percent(joint.recomputed_fraction), fmt::format("{}", joint.transfers),
                row.gave_up() ? "no fit" : ratio_or_same(row.to_spill(), row.is_spill),
                ratio_or_same(row.to_chunks(), row.is_chunks), fmt::format("{:.3f}", row.to_best()),
                fmt::format("+-{:.3f}", row.figures->control.spread)});
  return cells;
}

std::string text_of(const StudySetup& setup, const std::vector<Row>& rows) {
  const PlannerOptions& planner = setup.planners.front();
  Table table({"share:experts", "budget", "of ep", "chunks", "again", "moves", "to spill", "to ep", "to best",
               "A/A"});
  for (const Row& row : rows) table.add(cells_of(row));
  std::string text = fmt::format("{}\n{} tokens a rank, {}, min-segment {}, {}\n{}\n\n{}", layer_line(setup),
                                 setup.tokens, rounds(setup.pairs), planner.min_segment,
                                 name_of(planner.kind), kCriticalPath, table.text());
  if (const Row* const worst = worst_of(rows))
    text += fmt::format("\n  slowest against the best of both: {:.3f}, {} in {}\n", worst->to_best(),
                        short_name(worst->scenario), format_bytes(worst->budget));
  return text +
         "\n  chunks: of the joint choice, of spill kept wherever it fits, of ep; again: assignments "
         "computed\n"
         "  again in backward; moves: weight transfers (both of the joint choice); to spill, to ep: "
         "critical\n"
         "  path / theirs, medians in the same budget; same: joint chose that very step; to best: the "
         "larger;\n"
         "  A/A: spread of joint over itself\n";
}

Json json_of(const Row& row) {
  Json json = {{"scenario", row.scenario},
               {"budget", row.budget},
               {"budget_share", row.share()},
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
               {"joint", json_of_figures(row.joint())},
               {"spill", json_of_figures(row.spill())},
               {"chunks", json_of_figures(row.chunks())}});
  return json;
}

}  // namespace

Report in_budgets(const StudySetup& setup, const std::vector<std::string>& scenarios,
                  const std::vector<RequestedBudget>& budgets, const NamedProgress& progress) {
  std::vector<Batch> batches;
  for (const std::string& name : scenarios) batches.push_back(scenario_batch(setup, name));
  const std::vector<Row> rows = Measurement(setup, progress).take(batches, budgets);
  const Row* const worst = worst_of(rows);
  Json json = {{"ranks", setup.ranks},
               {"tokens_per_rank", setup.tokens},
               {"layer", layer_line(setup)},
               {"pairs", setup.pairs},
               {"planner", name_of(setup.planners.front().kind)},
               {"worst_to_best", worst == nullptr ? Json(nullptr) : Json(worst->to_best())},
               {"rows", Json::array()}};
  for (const Row& row : rows) json["rows"].push_back(json_of(row));
  return {text_of(setup, rows), std::move(json)};
}

}  // namespace evenkeel::study
