// Random steps with the memory that ranks have for them, as both executors meet them: drawn from a seed
// alone.
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
inline constexpr std::int64_t kCaseTokens = 1024;  // of each rank

// A part of the assignments goes to a few experts. Bytes are those of a layer's buffers; machines are slower
// and faster than the default by a factor of e.
struct StepCase {
  explicit StepCase(unsigned seed);

  std::vector<RankMemory> memories(const RoutedStep& of) const;
  // Of a layer whose buffers are known.
  DecisionOptions decision_options() const { return {options, step_expert(shape), kCaseTokens}; }
  // Each rank's tokens [begin, end).
  RoutedStep part(std::int64_t begin, std::int64_t end) const;
  RoutedStep without(std::int64_t tokens) const { return part(tokens, kCaseTokens); }

  RoutedStep step;
  ChunkShape shape;
  MemoryOptions options;
  std::int64_t bytes = 0;  // that each rank has
  // Linear in what a chunk puts on a rank: a layer of the same sizes whose bytes are measured; forward, then
  // backward. And what each rank has by that measure.
  std::vector<PhaseBytes> phases;
  std::int64_t phase_budget = 0;
};

// One pass of tokens of the case, in its bytes, with a planner whose pieces have 16 assignments or more.
void decide(const StepCase& problem, const DecisionOptions& options, StepPass pass, const RoutedStep& tokens,
            PlannerOptions::Kind planner, StepDecision& decision);

}  // namespace evenkeel::testing
