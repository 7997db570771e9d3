// The promise: bytes with which a rank's arena carries out every step, whatever the routing.
//
// Why so many   A step always goes through as plain EP in chunks of one token a rank: such a chunk puts
//               at most P k assignments on a rank. Besides, steps that wait for backward hold their tokens'
//               choices. Nothing of it depends on the routing.
#pragma once

#include <cstdint>
#include <limits>

#include "evenkeel/budget/chunk_bytes.h"
#include "evenkeel/budget/memory_options.h"

namespace evenkeel {

// Blocks into which a step's tokens are cut to be counted: so many, or where the arena has no memory for
// their table, half as many, and so on; one block needs none of it.
inline constexpr int kStepBlocks = 32;

// Of an arena, for a table of so many blocks.
std::int64_t block_table_bytes(const ChunkShape& shape, int blocks);

struct BudgetShape {
  ChunkShape chunk;
  std::int64_t max_tokens = 4096;  // that a rank brings to a step
  // Steps that wait for backward at one time, of all layers of the arena.
  int states_in_flight = 1;
  // The most that are at home on a rank, copies included; no more than there are.
  std::int64_t home_experts = std::numeric_limits<std::int64_t>::max();
  // Gradients that a rank keeps for other ranks whatever the plan: of copies at home whose owner is
  // elsewhere.
  std::int64_t copies = 0;
  Recompute recompute = Recompute::automatic;
};

// Bytes that a step needs besides the states that wait.
std::int64_t least_step_bytes(const BudgetShape& shape);
// Bytes that the states themselves hold at least.
std::int64_t least_state_bytes(const BudgetShape& shape);
// The least budget of an arena: both together.
std::int64_t least_budget(const BudgetShape& shape);

}  // namespace evenkeel
