#include "cli/bench_curve.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "cli/bench_layer.h"
#include "cli/budget_options.h"
#include "cli/options.h"
#include "evenkeel/base/bytes.h"
#include "evenkeel/base/error.h"

namespace evenkeel::cli {

namespace {

constexpr std::int64_t kPlainRounds = 3;

class CurveMeasurement {
 public:
  CurveMeasurement(const CurveSetup& setup, const std::string& scenario, const NamedProgress& progress)
      : setup_(setup),
        progress_(progress),
        ranks_(static_cast<int>(setup.bench.ranks)),
        batch_(scenario_batch(scenario, setup.bench.layer, ranks_, setup.bench.tokens)),
        layer_(setup.bench.layer, ranks_, batch_.num_tokens(), setup.bench.backward),
        free_(budget(Arena::kNoBudget)),
        reference_{setup.planner, free_} {
    curve_.scenario = batch_.name;
  }

  Curve take() {
    measure_free();
    measure_in("ample", 2 * curve_.reference.worst_peak_bytes(), false);
    for (const AskedBudget& asked : setup_.budgets)
      measure_in("budget", asked.bytes_of(curve_.ep.worst_peak_bytes()), true);
    return std::move(curve_);
  }

 private:
  Budget budget(std::int64_t bytes, Recompute recompute = Recompute::automatic) const {
    Budget budget{bytes, {}};
    budget.memory.recompute = recompute;
    budget.memory.cost = setup_.cost;
    return budget;
  }

  Figures measured(const std::string& what, const std::vector<Candidate>& candidates) const {
    return measured(what, candidates, setup_.bench.pairs);
  }
  // Plain EP takes several times as long as the others and is far from them: few rounds say enough.
  Figures measured_few(const std::string& what, const std::vector<Candidate>& candidates) const {
    return measured(what, candidates, std::min<std::int64_t>(setup_.bench.pairs, kPlainRounds));
  }
  Figures measured(const std::string& what, const std::vector<Candidate>& candidates,
                   std::int64_t pairs) const {
    return std::move(measure(layer_.experiment(pairs, reference_, candidates), {batch_}, {},
                             progress_(fmt::format("{}, {}", curve_.scenario, what)))
                         .front());
  }

  void add(const std::string& name, const Figures& figures, std::size_t candidate, bool asked) {
    const CandidateFigures& of = figures.candidates[candidate];
    curve_.rows.push_back({name, of.candidate, of, of.least_budget, figures.control, asked});
  }

  std::string planner_name() const { return std::string(name_of(setup_.planner.kind)); }

  void measure_free() {
    const Budget whole = budget(Arena::kNoBudget, Recompute::whole);
    std::vector<Candidate> candidates = {plain_ep(free_)};
    if (setup_.bench.backward) candidates.push_back(plain_ep(whole));
    const Figures plain = measured_few("ep, no budget", candidates);
    curve_.reference = plain.reference;
    curve_.ep = plain.candidates.front();
    add("ep", plain, 0, false);
    if (!setup_.bench.backward) return;
    add("ep, whole", plain, 1, false);
    const Figures figures = measured("no budget", {{setup_.planner, whole}});
    curve_.reference = figures.reference;
    add(planner_name() + ", whole", figures, 0, false);
  }

  void measure_in(const std::string& what, std::int64_t bytes, bool asked) {
    const Budget within = budget(bytes);
    const std::string in = fmt::format("{} {}", what, format_bytes(bytes));
    measure_or_refuse({setup_.planner, within}, asked ? "" : ", ample", asked,
                      [&](const Candidate& candidate) { return measured(in, {candidate}); });
    if (asked)
      measure_or_refuse(plain_ep(within), "", asked,
                        [&](const Candidate& candidate) { return measured_few("ep, " + in, {candidate}); });
  }

  template <class Measure>
  void measure_or_refuse(const Candidate& candidate, const char* suffix, bool asked, const Measure& measure) {
    const std::string name = fmt::format("{}{}", name_of(candidate.planner.kind), suffix);
    try {
      add(name, measure(candidate), 0, asked);
    } catch (const BudgetTooSmall&) {
      curve_.rows.push_back({name, candidate, std::nullopt, curve_.reference.least_budget, {}, asked});
    }
  }

  const CurveSetup& setup_;
  const NamedProgress& progress_;
  int ranks_;
  Batch batch_;
  BenchLayer layer_;
  Budget free_;
  Candidate reference_;
  Curve curve_;
};

}  // namespace

Curve measure_curve(const CurveSetup& setup, const std::string& scenario, const NamedProgress& progress) {
  return CurveMeasurement(setup, scenario, progress).take();
}

}  // namespace evenkeel::cli
