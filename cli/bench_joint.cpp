#include "cli/bench_joint.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "cli/bench_layer.h"
#include "evenkeel/base/bytes.h"
#include "evenkeel/base/error.h"

namespace evenkeel::cli {

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
  JointMeasurement(const JointSetup& setup, const std::vector<std::string>& scenarios,
                   const NamedProgress& progress)
      : setup_(setup),
        progress_(progress),
        ranks_(static_cast<int>(setup.bench.ranks)),
        layer_(setup.bench.layer, ranks_, setup.bench.tokens * ranks_, setup.bench.backward) {
    for (const std::string& name : scenarios)
      batches_.push_back(scenario_batch(name, setup.bench.layer, ranks_, setup.bench.tokens));
  }

  std::vector<JointRow> take() {
    std::vector<JointRow> rows;
    const std::vector<Figures> free = measured_free();
    for (std::size_t i = 0; i < batches_.size(); ++i)
      for (const AskedBudget& asked : setup_.budgets) {
        const CandidateFigures& spilled = free[i].candidates.front();
        const std::int64_t ep_peak = free[i].reference.worst_peak_bytes();
        rows.push_back({batches_[i].name, asked.bytes_of(ep_peak), ep_peak, spilled.least_budget,
                        spilled.transfers, std::nullopt});
        measure_row(batches_[i], rows.back());
      }
    return rows;
  }

 private:
  // Runs without a budget: the bytes that plain ep takes, and whether the planner spills.
  std::vector<Figures> measured_free() const {
    ExperimentSetup experiment = layer_.experiment(1, plain_ep({}), {{setup_.planner, {}}});
    experiment.warm_ups = 0;
    return measure(experiment, batches_, {}, progress_("no budget"));
  }

  void measure_row(const Batch& batch, JointRow& row) const {
    Budget joint{row.budget, {}};
    joint.memory.cost = setup_.cost;
    Budget spill = joint;
    spill.memory.keep_plan = true;
    const Candidate reference{setup_.planner, joint}, spilled{setup_.planner, spill},
        chunked = plain_ep(joint);
    const std::string what = fmt::format("{} in {}", batch.name, format_bytes(row.budget));
    try {
      ExperimentSetup experiment = layer_.experiment(1, reference, {spilled, chunked});
      experiment.warm_ups = 0;
      const Figures once = measured(experiment, batch, what + ", once");
      row.is_spill = is_same_step(once.reference, once.candidates[0]);
      row.is_chunks = is_same_step(once.reference, once.candidates[1]);
      // A candidate whose step is the same as the reference's is not measured again: only the machine would
      // tell them apart.
      std::vector<Candidate> others;
      if (!row.is_spill) others.push_back(spilled);
      if (!row.is_chunks) others.push_back(chunked);
      Figures figures = measured(layer_.experiment(setup_.bench.pairs, reference, others), batch, what);
      if (row.is_spill) figures.candidates.insert(figures.candidates.begin(), figures.reference);
      if (row.is_chunks) figures.candidates.push_back(figures.reference);
      row.figures = std::move(figures);
    } catch (const BudgetTooSmall&) {
      return;  // the row says so
    }
  }

  Figures measured(const ExperimentSetup& experiment, const Batch& batch, const std::string& what) const {
    return std::move(measure(experiment, {batch}, {}, progress_(what)).front());
  }

  const JointSetup& setup_;
  const NamedProgress& progress_;
  int ranks_;
  BenchLayer layer_;
  std::vector<Batch> batches_;
};

}  // namespace

double JointRow::to_best() const {
  return std::max(to_spill(), to_chunks());
}

std::vector<JointRow> measure_joint(const JointSetup& setup, const std::vector<std::string>& scenarios,
                                    const NamedProgress& progress) {
  return JointMeasurement(setup, scenarios, progress).take();
}

}  // namespace evenkeel::cli
