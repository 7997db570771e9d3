// A planner fills the step plan of one layer and step. Every rank runs it on the same counts and gets the
// same plan: a plan depends on the arguments alone, never on time, threads or hash order.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "evenkeel/cost/spill_costs.h"
#include "evenkeel/plan/counts.h"
#include "evenkeel/plan/placement.h"
#include "evenkeel/plan/step_plan.h"

namespace evenkeel {

class Planner {
 public:
  virtual ~Planner() = default;

  // "ep", "least-loaded" or "level".
  virtual std::string_view name() const = 0;

  // Fills `plan` from the counts of all ranks and the experts' homes, which must agree in experts and ranks.
  // `base_load`, by rank, is work that each rank has anyway (shared experts, a slower device), counted in
  // assignments; empty means none. Reuses its own memory and the plan's: no allocation after the first call
  // of a shape. Not for two threads at once.
  virtual void plan(const Counts& counts, const LayerPlacement& placement, StepPlan& plan,
                    std::span<const std::int64_t> base_load = {}) = 0;
};

inline constexpr std::int64_t kUnlimitedSlots = std::numeric_limits<std::int64_t>::max();

// Parameters of all planners; each header says which it reads and how. Ratios are kept in thousandths, so
// that every backend's planner computes with the same integers.
struct PlannerOptions {
  enum class Kind { ep, least_loaded, level };
  Kind kind = Kind::least_loaded;
  std::int64_t capacity_factor_thousandths = 1000;  // alpha
  std::int64_t min_segment = 1024;                  // m, assignments
  // lambda: max/mean below which nothing moves, of experts for least-loaded (as in the paper), of ranks for
  // level; 0 always plans.
  std::int64_t imbalance_threshold_thousandths = 1300;
  // The most experts that a rank borrows in a step. level keeps to it, ep never borrows, least-loaded takes
  // no limit.
  std::int64_t borrow_slots = kUnlimitedSlots;
  // Work moves only where the seconds gained are predicted to exceed those it costs, besides all that the
  // planner asks for; nothing: the planner alone decides. Not on a CUDA device.
  std::optional<SpillCosts> costs = std::nullopt;
  // Where they differ, level weighs several plans and takes the one predicted to take the least time. Not on
  // a CUDA device.
  std::optional<StepLinks> links = std::nullopt;
};

// The planner's name().
std::string_view name_of(PlannerOptions::Kind kind);
// Throws InvalidArgument, which calls it `argument`.
PlannerOptions::Kind parse_planner(std::string_view name, const std::string& argument = "planner");

// Throws InvalidArgument for a capacity factor below 1, a negative min_segment, threshold or number of borrow
// slots, a limit on slots for least-loaded, costs that are no seconds, or links for another planner, beside
// costs, or that require_links() refuses.
std::unique_ptr<Planner> make_planner(const PlannerOptions& options);

// How long a planner takes for one plan: the median over many, without the first ones, which warm up, since
// single calls take microseconds. No plan is begun after `seconds`, so that of slow ones the only one counts.
// `plan` is then the plan.
double median_plan_us(Planner& planner, const Counts& counts, const LayerPlacement& placement, StepPlan& plan,
                      double seconds);

// A plan's step over links: the seconds it is predicted to take, and the bytes that pass between nodes.
struct PredictedStep {
  double seconds = 0;                           // without rows where counts have no sources
  std::optional<double> row_bytes_across = {};  // between nodes, one way; where counts have sources
  double weight_bytes_across = 0;               // in training with gradients
};

// O(P^2 + P E). Throws InvalidArgument where ranks are not the topology's.
PredictedStep predict_step(const StepLinks& links, const Counts& counts, const StepPlan& plan,
                           std::span<const std::int64_t> base_load = {});

struct PredictedSteps {
  PredictedStep planned, plain;
  std::optional<PredictedStep> without_links = {};  // of level's plan were all links alike
};

// The step under `plan`, which these options made, beside those that it is compared with: `plain`, of ep, is
// one.
PredictedSteps predict_steps(const StepLinks& links, const PlannerOptions& options, const Counts& counts,
                             const LayerPlacement& placement, const StepPlan& plan, const StepPlan& plain,
                             std::span<const std::int64_t> base_load = {});

}  // namespace evenkeel
