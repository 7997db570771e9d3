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

// Parameters of all planners; each planner's header says which it reads and how. Ratios are kept in
// thousandths, so that planners of every backend compute with the same integers.
struct PlannerOptions {
  enum class Kind { ep, least_loaded, level };
  Kind kind = Kind::least_loaded;
  std::int64_t capacity_factor_thousandths = 1000;  // alpha
  std::int64_t min_segment = 1024;                  // m, assignments
  // lambda: nothing moves where max/mean is below this. For least-loaded the ratio is over experts' loads (as
  // in the paper), for level over ranks' loads. 0 always plans.
  std::int64_t imbalance_threshold_thousandths = 1300;
  // The most experts that a rank borrows in a step. level keeps to it, ep never borrows, least-loaded
  // supports no limit.
  std::int64_t borrow_slots = kUnlimitedSlots;
  // If set, work moves only where it is predicted to save more seconds than it costs, in addition to the
  // planner's own conditions. Not on a CUDA device.
  std::optional<SpillCosts> costs = std::nullopt;
  // If set and links differ, level compares several plans and takes the one predicted to take the least time.
  // Not on a CUDA device.
  std::optional<StepLinks> links = std::nullopt;
};

// The planner's name().
std::string_view name_of(PlannerOptions::Kind kind);
// Throws InvalidArgument about `argument`.
PlannerOptions::Kind parse_planner(std::string_view name, const std::string& argument = "planner");

// Throws InvalidArgument for a capacity factor below 1; a negative min_segment, threshold or number of borrow
// slots; a limit on slots for least-loaded; costs that are negative or not finite; and links that
// require_links() refuses, that are given with costs, or that are for another planner than level.
std::unique_ptr<Planner> make_planner(const PlannerOptions& options);

// How many microseconds a planner takes for one plan: the median over many calls without the first ones,
// which warm up. No call begins after `seconds`; a slow planner may get only one, which then counts. Leaves
// the last plan in `plan`.
double median_plan_us(Planner& planner, const Counts& counts, const LayerPlacement& placement, StepPlan& plan,
                      double seconds);

// Predicts a step over links under a plan: its seconds, and the bytes that pass between nodes.
struct PredictedStep {
  double seconds = 0;                           // leaves rows out if counts have no sources
  std::optional<double> row_bytes_across = {};  // between nodes, one way; set if counts have sources
  double weight_bytes_across = 0;               // in training with gradients
};

// O(P^2 + P E). Throws InvalidArgument unless the ranks are the topology's.
PredictedStep predict_step(const StepLinks& links, const Counts& counts, const StepPlan& plan,
                           std::span<const std::int64_t> base_load = {});

struct PredictedSteps {
  PredictedStep planned, plain;
  std::optional<PredictedStep> without_links = {};  // under the plan that level makes without links
};

// Predicts the step under `plan`, which these options made, and under the plans to compare it with; one is
// `plain`, made by ep.
PredictedSteps predict_steps(const StepLinks& links, const PlannerOptions& options, const Counts& counts,
                             const LayerPlacement& placement, const StepPlan& plan, const StepPlan& plain,
                             std::span<const std::int64_t> base_load = {});

}  // namespace evenkeel
