#include "evenkeel/study/joint.h"

#include <fmt/format.h>

#include <tuple>
#include <utility>

#include "evenkeel/base/bytes.h"
#include "evenkeel/base/error.h"

namespace evenkeel {

namespace {

// Nothing but its time tells the step of one way from that of the other.
bool is_same_step(const CandidateFigures& a, const CandidateFigures& b) {
  const auto told_by = [](const CandidateFigures& of) {
    return std::tie(of.rank_loads, of.peak_bytes, of.transfers, of.chunks, of.recomputed_fraction,
                    of.dispatch_bytes, of.combine_bytes, of.transfer_bytes);
  };
  return told_by(a) == told_by(b);
}

class JointMeasurement {
 public:
  JointMeasurement(const StudySetup& setup, const NamedProgress& progress)
      : setup_(setup), progress_(progress), inputs_(seeded_inputs(setup, setup.tokens * setup.ranks)) {}

  std::vector<JointRow> take(const std::vector<Batch>& batches,
                             const std::vector<AskedBudget>& budgets) const {
    std::vector<JointRow> rows;
    const std::vector<Figures> free = measured_free(batches);
    for (std::size_t i = 0; i < batches.size(); ++i)
      for (const AskedBudget& asked : budgets) {
        const CandidateFigures& spilled = free[i].candidates.front();
        const std::int64_t ep_peak = free[i].reference.worst_peak_bytes();
        rows.push_back({batches[i].name, asked.bytes_of(ep_peak), ep_peak, spilled.least_budget,
                        spilled.transfers, std::nullopt});
        try {
          measure_row(batches[i], rows.back());
        } catch (const BudgetTooSmall&) {  // the row says so
        }
      }
    return rows;
  }

 private:
  // Figures that do not depend on time: one round, not warmed up.
  ExperimentSetup once(const Candidate& reference, std::vector<Candidate> candidates) const {
    ExperimentSetup experiment = experiment_of(setup_, inputs_, reference, std::move(candidates), 1);
    experiment.warm_ups = 0;
    return experiment;
  }

  // Runs without a budget: the bytes that plain ep takes, and whether the planner spills.
  std::vector<Figures> measured_free(const std::vector<Batch>& batches) const {
    return measure(once(plain_ep(), {{setup_.planners.front(), {}}}), batches, {}, progress_("no budget"));
  }

  void measure_row(const Batch& batch, JointRow& row) const {
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
    // A candidate whose step is the same as the reference's is not measured again: only the machine would
    // tell them apart.
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

}  // namespace

const JointRow* JointTable::worst() const {
  const JointRow* worst = nullptr;
  for (const JointRow& row : rows)
    if (row.figures && (worst == nullptr || row.to_best() > worst->to_best())) worst = &row;
  return worst;
}

JointTable measure_joint(const StudySetup& setup, const std::vector<std::string>& scenarios,
                         const std::vector<AskedBudget>& budgets, const NamedProgress& progress) {
  JointMeasurement measurement(setup, progress);
  std::vector<Batch> batches;
  for (const std::string& name : scenarios) batches.push_back(scenario_batch(setup, name));
  return {setup, measurement.take(batches, budgets)};
}

}  // namespace evenkeel
