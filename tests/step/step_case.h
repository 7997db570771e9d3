// Random steps with the memory of each rank, for tests of both executors. A case depends only on its seed.
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "evenkeel/budget/chunk_bytes.h"
#include "evenkeel/budget/memory_options.h"
#include "evenkeel/budget/phase_bytes.h"
#include "evenkeel/step/decide.h"
#include "tests/budget/routed_step.h"

namespace evenkeel::testing {

inline constexpr int kCaseBlocks = 32;
inline constexpr std::int64_t kCaseTokens = 1024;  // per rank

// A step in which part of the assignments goes to few experts. Bytes are those of a layer's buffers. Machines
// are up to a factor of e slower or faster than the default.
struct StepCase {
  explicit StepCase(unsigned seed);

  std::vector<RankMemory> memories(const RoutedStep& of) const;
  // Options of a layer whose buffers are known.
  DecisionOptions decision_options() const { return {options, step_expert(shape), kCaseTokens}; }
  // The step with only the tokens [begin, end) of each rank.
  RoutedStep part(std::int64_t begin, std::int64_t end) const;
  RoutedStep without(std::int64_t tokens) const { return part(tokens, kCaseTokens); }

  RoutedStep step;
  ChunkShape shape;
  MemoryOptions options;
  std::int64_t bytes = 0;  // memory of each rank
  // The bytes of the same layer as a framework measures them, linear in the load that a chunk puts on a rank.
  // The phases of forward come first, then those of backward. phase_budget is each rank's memory in these
  // bytes.
  std::vector<PhaseBytes> phases;
  std::int64_t phase_budget = 0;
};

// Decides one pass for `tokens` with the case's bytes and a planner with segments of at least 16 assignments.
void decide(const StepCase& problem, const DecisionOptions& options, StepPass pass, const RoutedStep& tokens,
            PlannerOptions::Kind planner, StepDecision& decision);

}  // namespace evenkeel::testing
