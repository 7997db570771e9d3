#include "evenkeel/study/curve.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "evenkeel/base/bytes.h"
#include "evenkeel/base/error.h"

namespace evenkeel {

namespace {

class CurveMeasurement {
 public:
  CurveMeasurement(const StudySetup& setup, const std::string& scenario, const NamedProgress& progress)
      : setup_(setup),
        progress_(progress),
        inputs_(seeded_inputs(setup, setup.tokens * setup.ranks)),
        batch_(scenario_batch(setup, scenario)) {
    curve_.scenario = batch_.name;
  }

  Curve take(const std::vector<RequestedBudget>& budgets) {
    // Plain ep takes several times as long as the others, so a few rounds are enough.
    const int few_rounds = std::min(setup_.pairs, 3);
    const Figures unbounded = measured(plain_ep(within(Arena::kNoBudget)), few_rounds, "ep, no budget");
    curve_.reference = unbounded.reference;
    curve_.ep = unbounded.candidates.front();
    add(unbounded, false);
    if (setup_.backward) add_whole(few_rounds);
    add(planned(within(2 * curve_.reference.worst_peak_bytes())), setup_.pairs, "ample ", false);
    for (const RequestedBudget& requested : budgets) {
      const Budget budget = within(requested.bytes_of(curve_.ep.worst_peak_bytes()));
      add(planned(budget), setup_.pairs, "budget ", true);
      add(plain_ep(budget), few_rounds, "ep, budget ", true);
    }
    return std::move(curve_);
  }

 private:
  Budget within(std::int64_t bytes, Recompute recompute = Recompute::automatic) const {
    Budget budget = setup_.budget;
    budget.bytes = bytes;
    budget.memory.recompute = recompute;
    return budget;
  }
  Candidate planned(const Budget& budget) const { return {setup_.planners.front(), budget}; }

  Figures measured(const Candidate& candidate, int rounds, const std::string& what) const {
    return measure(experiment_of(setup_, inputs_, planned(within(Arena::kNoBudget)), {candidate}, rounds),
                   batch_, progress_(fmt::format("{}, {}", curve_.scenario, what)));
  }

  void add(const Figures& figures, bool requested) {
    const CandidateFigures& of = figures.candidates.front();
    curve_.rows.push_back({of.candidate, of, of.least_budget, figures.control, requested});
  }
  void add(const Candidate& candidate, int rounds, const std::string& what, bool requested) {
    try {
      add(measured(candidate, rounds, what + format_bytes(candidate.budget.bytes)), requested);
    } catch (const BudgetTooSmall&) {
      curve_.rows.push_back({candidate, std::nullopt, curve_.reference.least_budget, {}, requested});
    }
  }
  // Adds the rows in which backward recomputes the whole step as one chunk.
  void add_whole(int few_rounds) {
    const Budget whole = within(Arena::kNoBudget, Recompute::whole);
    add(measured(plain_ep(whole), few_rounds, "ep, whole"), false);
    const Figures figures = measured(planned(whole), setup_.pairs, "no budget");
    curve_.reference = figures.reference;
    add(figures, false);
  }

  const StudySetup& setup_;
  const NamedProgress& progress_;
  LayerInputs inputs_;
  Batch batch_;
  Curve curve_;
};

}  // namespace

Curves measure_curves(const StudySetup& setup, const std::vector<std::string>& scenarios,
                      const std::vector<RequestedBudget>& budgets, const NamedProgress& progress) {
  Curves curves{setup, {}};
  for (const std::string& scenario : scenarios)
    curves.scenarios.push_back(CurveMeasurement(setup, scenario, progress).take(budgets));
  return curves;
}

}  // namespace evenkeel
