// Statistics of a step on one rank.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "evenkeel/step/step_reason.h"

namespace evenkeel {

// The phases of a step, forward or backward. Gathering the counts is part of plan.
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
  int chunk = -1;  // index in this pass, in the order of execution; -1 outside of chunks

  friend bool operator==(const StepMoment&, const StepMoment&) = default;
};

// A finished phase.
struct TimedPhase {
  StepMoment moment;
  double begin = 0;  // wall_seconds()
  double end = 0;
  double cpu_seconds = 0;  // of the rank's thread
};

struct StepStatistics {
  bool backward = false;
  // CPU time of this rank's thread, by phase, in seconds; waiting does not count.
  std::array<double, kPhases> cpu_seconds{};
  double wall_seconds = 0;
  // The planner's part of Phase::plan. 0 in backward, which reuses the plan.
  double planning_seconds = 0;
  std::int64_t assignments = 0;  // assignments computed on this rank in forward
  int chunks = 0;                // number of chunks of this pass
  // In backward: assignments on this rank whose forward was computed again.
  std::int64_t recomputed_assignments = 0;
};

// What the ranks decided about a step.
struct StepReport {
  int chunks = 0;
  int transfers = 0;  // weight transfers between all ranks
  StepReason reason = StepReason::as_planned;
  int borrowed = 0;               // experts that this rank borrows
  std::int64_t weights_sent = 0;  // copied to this rank in a pass; more than `borrowed` if slots are too few
  std::vector<std::int64_t> rank_loads;
};

}  // namespace evenkeel
