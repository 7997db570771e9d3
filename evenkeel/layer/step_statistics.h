// The cost of a step on one rank, for those who ask.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "evenkeel/step/step_reason.h"

namespace evenkeel {

// The phases of a step, forward or backward. The gathering of counts belongs to plan.
enum class Phase { plan, dispatch, transfer, compute, combine };
inline constexpr std::size_t kPhases = 5;
constexpr std::string_view name_of(Phase phase) {
  constexpr std::array<std::string_view, kPhases> names = {"plan", "dispatch", "transfer", "compute",
                                                           "combine"};
  return names[static_cast<std::size_t>(phase)];
}

// Where in a step a rank is.
struct StepMoment {
  bool backward = false;
  Phase phase = Phase::plan;
  int chunk = -1;  // of those of this pass, in the order they are carried out; -1: of none of them

  friend bool operator==(const StepMoment&, const StepMoment&) = default;
};

// A phase that a rank has left.
struct TimedPhase {
  StepMoment moment;
  double begin = 0;  // wall_seconds()
  double end = 0;
  double cpu_seconds = 0;  // of the rank's thread
};

struct StepStatistics {
  bool backward = false;
  // CPU time of this rank's thread, by phase, in seconds; waiting costs none.
  std::array<double, kPhases> cpu_seconds{};
  double wall_seconds = 0;
  // The planner alone, within Phase::plan. 0 in backward, which reuses the plan.
  double planning_seconds = 0;
  std::int64_t assignments = 0;  // computed on this rank, forward
  int chunks = 0;                // in which the tokens went through this pass
  // Backward: assignments on this rank whose forward was computed again.
  std::int64_t recomputed_assignments = 0;
};

// The decisions of the ranks about a step.
struct StepReport {
  int chunks = 0;
  int transfers = 0;  // of experts' weights, between any ranks
  StepReason reason = StepReason::as_planned;
  int borrowed = 0;               // experts, by this rank
  std::int64_t weights_sent = 0;  // to this rank in a pass; more than `borrowed` where borrow slots are fewer
  std::vector<std::int64_t> rank_loads;
};

}  // namespace evenkeel
