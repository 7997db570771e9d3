#include "cli/bench_curve.h"

#include <fmt/format.h>

#include <utility>

#include "cli/bench_layer.h"
#include "cli/budget_options.h"
#include "cli/options.h"
#include "evenkeel/base/bytes.h"
#include "evenkeel/base/error.h"

namespace evenkeel::cli {

namespace {

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

  Figures measured(const std::string& what, const std::vector<Way>& ways) const {
    return std::move(measure(layer_.experiment(setup_.bench.pairs, reference_, ways), {batch_}, {},
                             progress_(fmt::format("{}, {}", curve_.scenario, what)))
                         .front());
  }

  void add(const std::string& name, const Figures& figures, std::size_t way, bool asked) {
    const WayFigures& of = figures.ways[way];
    curve_.rows.push_back(
        {name, of.way, of, of.least_budget, figures.control_ratio, figures.control_spread, asked});
  }

  std::string planner_name() const { return std::string(name_of(setup_.planner.kind)); }

  void measure_free() {
    std::vector<Way> ways = {plain_ep(free_)};
    if (setup_.bench.backward) {
      const Budget whole = budget(Arena::kNoBudget, Recompute::whole);
      ways.push_back(plain_ep(whole));
      ways.push_back({setup_.planner, whole});
    }
    const Figures figures = measured("no budget", ways);
    curve_.reference = figures.reference;
    curve_.ep = figures.ways.front();
    add("ep", figures, 0, false);
    if (!setup_.bench.backward) return;
    add("ep, whole", figures, 1, false);
    add(planner_name() + ", whole", figures, 2, false);
  }

  void measure_in(const std::string& what, std::int64_t bytes, bool asked) {
    const Budget within = budget(bytes);
    std::vector<Way> ways = {{setup_.planner, within}};
    if (asked) ways.push_back(plain_ep(within));
    const auto name = [&](const Way& way) {
      return fmt::format("{}{}", name_of(way.planner.kind), asked ? "" : ", ample");
    };
    try {
      const Figures figures = measured(fmt::format("{} {}", what, format_bytes(bytes)), ways);
      for (std::size_t i = 0; i < ways.size(); ++i) add(name(ways[i]), figures, i, asked);
    } catch (const BudgetTooSmall&) {
      for (const Way& way : ways)
        curve_.rows.push_back({name(way), way, std::nullopt, curve_.reference.least_budget, 1, 0, asked});
    }
  }

  const CurveSetup& setup_;
  const NamedProgress& progress_;
  int ranks_;
  Batch batch_;
  BenchLayer layer_;
  Budget free_;
  Way reference_;
  Curve curve_;
};

}  // namespace

Curve measure_curve(const CurveSetup& setup, const std::string& scenario, const NamedProgress& progress) {
  return CurveMeasurement(setup, scenario, progress).take();
}

}  // namespace evenkeel::cli
