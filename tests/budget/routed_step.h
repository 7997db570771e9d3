// One step's tokens on all ranks, and the load that each of its chunks puts on each rank. Loads are counted
// from the expert ids, token by token.
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

// A step with up to `most_tokens` per rank. Some ranks have none; ids include hot experts, repeats and -1.
// `copies` gives experts several homes.
RoutedStep random_step(std::mt19937_64& random, int ranks, int experts, int k, std::int64_t most_tokens,
                       bool copies);

// Every rank's table of `blocks` blocks. It is stored in `numbers`, which must outlive it.
BlockTable block_table(const RoutedStep& step, int blocks, std::vector<std::int32_t>& numbers);

// [chunk][rank]: the load that each chunk puts on each rank when `plan` is carried out in `chunks`.
std::vector<std::vector<ChunkLoad>> dealt_loads(const RoutedStep& step, const StepPlan& plan,
                                                std::span<const Chunk> chunks, std::int64_t units);

// The plan of a random planner of the library.
StepPlan random_plan(const RoutedStep& step, std::mt19937_64& random);
StepPlan plain_plan(const RoutedStep& step);

}  // namespace evenkeel::testing
