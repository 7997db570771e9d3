// What a way to carry out a step would take, in seconds: enough to choose between ways, from few numbers.
#pragma once

#include <cstdint>
#include <span>

#include "evenkeel/memory/block_loads.h"
#include "evenkeel/memory/chunk_planner.h"

namespace evenkeel {

// Of one rank. `evenkeel bench --calibrate` measures them.
struct CostModel {
  double flops_per_second = 1.5e11;         // products of many rows
  double weight_bytes_per_second = 1.0e10;  // products of few rows, which wait for their weights
  double link_bytes_per_second = 4.0e9;     // weights from rank to rank
  double chunk_seconds = 6.0e-5;            // messages and bookkeeping of a chunk

  friend bool operator==(const CostModel&, const CostModel&) = default;
};

// The time of the slowest rank in each chunk, summed; backward included where the shape has it. `transfers`
// is the most expert weights that one rank borrows.
double step_seconds(const ChunkShape& shape, const CostModel& cost, const BlockLoads& loads,
                    std::span<const Chunk> chunks, std::int64_t units, std::int64_t transfers);

// Less than which no way of the plan takes.
double least_seconds(const ChunkShape& shape, const CostModel& cost, const BlockLoads& loads,
                     std::int64_t units, std::int64_t transfers);

}  // namespace evenkeel
