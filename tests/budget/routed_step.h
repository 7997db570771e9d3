// The tokens of all ranks in one step, and what carrying it out in chunks puts on each rank: dealt from the
// raw choices, token by token.
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "evenkeel/budget/block_table.h"
#include "evenkeel/budget/chunk_bytes.h"
#include "evenkeel/budget/chunk_planner.h"
#include "evenkeel/plan/counts.h"
#include "evenkeel/plan/placement.h"
#include "evenkeel/plan/step_plan.h"

namespace evenkeel::testing {

struct RoutedStep {
  int k = 1;
  LayerPlacement placement = LayerPlacement::contiguous(1, 1);
  std::vector<std::vector<std::int32_t>> ids;  // by rank, [tokens * k]

  int ranks() const { return placement.num_ranks(); }
  int experts() const { return placement.num_experts(); }
  std::vector<std::int64_t> tokens() const;  // by rank
  Counts counts() const;
};

// Up to `most_tokens` a rank: some ranks without any, hot experts, repeated ids, -1; `copies` gives experts
// several homes.
RoutedStep random_step(std::mt19937_64& random, int ranks, int experts, int k, std::int64_t most_tokens,
                       bool copies);

// Every rank's table of so many blocks, in `numbers`, which must stay as long as the table.
BlockTable block_table(const RoutedStep& step, int blocks, std::vector<std::int32_t>& numbers);

// The load that each chunk puts on each rank, [chunk][rank], when the step's plan is carried out in these
// chunks.
std::vector<std::vector<ChunkLoad>> dealt_loads(const RoutedStep& step, const StepPlan& plan,
                                                std::span<const Chunk> chunks, std::int64_t units);

// One of the library's planners, at random.
StepPlan random_plan(const RoutedStep& step, std::mt19937_64& random);
StepPlan plain_plan(const RoutedStep& step);

}  // namespace evenkeel::testing
