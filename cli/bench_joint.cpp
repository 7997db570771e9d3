#include "cli/bench_joint.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "cli/bench_layer.h"
#include "evenkeel/base/bytes.h"
#include "evenkeel/base/error.h"

namespace evenkeel::cli {

namespace {

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
        const WayFigures& spilled = free[i].ways.front();
        const std::int64_t ep_peak = free[i].reference.worst_peak_bytes();
        rows.push_back({batches_[i].name, asked.bytes_of(ep_peak), ep_peak, spilled.least_budget,
                        spilled.transfers, std::nullopt});
        measure_row(batches_[i], rows.back());
      }
    return rows;
  }

 private:
  // What plain ep takes, and whether the planner spills.
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
    const ExperimentSetup experiment = layer_.experiment(setup_.bench.pairs, {setup_.planner, joint},
                                                         {{setup_.planner, spill}, plain_ep(joint)});
    const std::string what = fmt::format("{} in {}", batch.name, format_bytes(row.budget));
    try {
      row.figures = std::move(measure(experiment, {batch}, {}, progress_(what)).front());
    } catch (const BudgetTooSmall&) {
      return;  // the row says so
    }
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
