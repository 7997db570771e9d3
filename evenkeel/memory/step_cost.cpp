#include "evenkeel/memory/step_cost.h"

#include <algorithm>

namespace evenkeel {

namespace {

// A part of a block is taken to have its share of the block's load.
double chunk_seconds(const ChunkShape& shape, const CostModel& cost, const BlockLoads& loads, Chunk chunk,
                     std::int64_t units) {
  const std::int64_t block_units = units / loads.num_blocks();
  const auto begin = static_cast<int>(chunk.begin / block_units);
  const auto end = static_cast<int>((chunk.end + block_units - 1) / block_units);
  const double part =
      static_cast<double>(chunk.end - chunk.begin) / static_cast<double>((end - begin) * block_units);
  const double elements = static_cast<double>(shape.weight_bytes) / static_cast<double>(shape.element_bytes);
  const double position = 2 * elements / cost.flops_per_second;
  const double group = static_cast<double>(shape.weight_bytes) / cost.weight_bytes_per_second;
  // Backward multiplies twice as much, and reads and writes f32 gradients; recomputing, two products of
  // three.
  const double again = (chunk.kept ? chunk.recomputed : 1.0) * 2 / 3;
  const double products = shape.with_backward ? 3 + again : 1;
  const double passes = shape.with_backward ? 2 + again + 8.0 / static_cast<double>(shape.element_bytes) : 1;
  double slowest = 0;
  for (RankId rank : indices<RankId>(loads.num_ranks())) {
    const ChunkLoad load = loads.load(rank, begin, end);
    const double positions = part * static_cast<double>(load.positions_here);
    const double groups = std::min(positions, static_cast<double>(load.groups));
    slowest = std::max(slowest, positions * position * products + groups * group * passes);
  }
  return slowest + cost.chunk_seconds * (shape.with_backward ? 2 : 1);
}

}  // namespace

double step_seconds(const ChunkShape& shape, const CostModel& cost, const BlockLoads& loads,
                    std::span<const Chunk> chunks, std::int64_t units, std::int64_t transfers) {
  const std::int64_t travelling =
      shape.with_backward ? 2 * shape.weight_bytes + shape.gradient_bytes : shape.weight_bytes;
  double seconds = static_cast<double>(transfers * travelling) / cost.link_bytes_per_second;
  for (const Chunk& chunk : chunks) seconds += chunk_seconds(shape, cost, loads, chunk, units);
  return seconds;
}

// One kept chunk computes nothing again, and its slowest rank is no slower than those of its parts together.
double least_seconds(const ChunkShape& shape, const CostModel& cost, const BlockLoads& loads,
                     std::int64_t units, std::int64_t transfers) {
  const Chunk whole{0, units, true};
  return step_seconds(shape, cost, loads, {&whole, 1}, units, transfers);
}

}  // namespace evenkeel
