// The least budget: the bytes with which a rank's arena can run every step, whatever the routing.
//
// Reason   A step can always run as plain EP in chunks of one token a rank, and such a chunk puts at most
//          P k assignments on a rank. Steps that wait for backward also hold their tokens' choices. Neither
//          depends on the routing.
#pragma once

#include <cstdint>
#include <limits>

#include "evenkeel/budget/chunk_bytes.h"
#include "evenkeel/budget/memory_options.h"

namespace evenkeel {

// How many blocks a step's tokens are cut into for counting. Where their table does not fit the arena, half
// as many are used, and so on. A single block needs no arena memory.
inline constexpr int kStepBlocks = 32;

// Arena bytes of a table of `blocks` blocks.
std::int64_t block_table_bytes(const ChunkShape& shape, int blocks);

struct BudgetShape {
  ChunkShape chunk;
  std::int64_t max_tokens = 4096;  // the most tokens that a rank brings to a step
  // The most steps that wait for backward at one time, over all layers of the arena.
  int states_in_flight = 1;
  // The most experts at home on a rank, copies included; capped at the number of experts.
  std::int64_t home_experts = std::numeric_limits<std::int64_t>::max();
  // Copies at home on a rank whose owner is another rank. The rank holds their gradients under any plan.
  std::int64_t copies = 0;
  Recompute recompute = Recompute::automatic;
};

// Bytes that a step needs besides the states that wait for backward.
std::int64_t least_step_bytes(const BudgetShape& shape);
// The least bytes that the states that wait for backward hold.
std::int64_t least_state_bytes(const BudgetShape& shape);
// The least budget of an arena: the sum of the two functions above.
std::int64_t least_budget(const BudgetShape& shape);

}  // namespace evenkeel
