#include "evenkeel/memory/step_cost.h"

#include <algorithm>

namespace evenkeel {

namespace {

// What a step's chunks take, each as long as its slowest rank.
class ChunkSeconds {
 public:
  ChunkSeconds(const ChunkShape& shape, const CostModel& cost, const BlockLoads& loads, std::int64_t units)
      : loads_(loads),
        block_units_(units / loads.num_blocks()),
        with_backward_(shape.with_backward),
        position_(2 * static_cast<double>(shape.weight_bytes) / static_cast<double>(shape.element_bytes) /
                  cost.flops_per_second),
        group_(static_cast<double>(shape.weight_bytes) / cost.weight_bytes_per_second),
        gradients_(8.0 / static_cast<double>(shape.element_bytes)),
        fixed_(cost.chunk_seconds * (shape.with_backward ? 2 : 1)) {}

  // A part of a block is taken to have its share of the block's load.
  double operator()(const Chunk& chunk) const {
    const auto begin = static_cast<int>(chunk.begin / block_units_);
    const auto end = static_cast<int>((chunk.end + block_units_ - 1) / block_units_);
    const double part =
        static_cast<double>(chunk.end - chunk.begin) / static_cast<double>((end - begin) * block_units_);
    // Backward multiplies twice as much, and reads and writes f32 gradients; recomputing, two products of
    // three.
    const double again = (chunk.kept ? chunk.recomputed : 1.0) * 2 / 3;
    const double of_position = part * position_ * (with_backward_ ? 3 + again : 1);
    const double of_group = group_ * (with_backward_ ? 2 + again + gradients_ : 1);
    double slowest = 0;
    for (RankId rank : indices<RankId>(loads_.num_ranks())) {
      const auto positions = static_cast<double>(loads_.positions(rank, begin, end));
      const double groups = std::min(part * positions, static_cast<double>(loads_.groups(rank)));
      slowest = std::max(slowest, positions * of_position + groups * of_group);
    }
    return slowest + fixed_;
  }

 private:
  const BlockLoads& loads_;
  std::int64_t block_units_;
  bool with_backward_;
  double position_;   // of one position's forward pass
  double group_;      // of reading one expert's weights
  double gradients_;  // bytes of its gradients, read and written, as a share of the weights'
  double fixed_;      // of any chunk
};

}  // namespace

double step_seconds(const ChunkShape& shape, const CostModel& cost, const BlockLoads& loads,
                    std::span<const Chunk> chunks, std::int64_t units, std::int64_t transfers) {
  const std::int64_t travelling =
      shape.with_backward ? 2 * shape.weight_bytes + shape.gradient_bytes : shape.weight_bytes;
  double seconds = static_cast<double>(transfers * travelling) / cost.link_bytes_per_second;
  const ChunkSeconds seconds_of(shape, cost, loads, units);
  for (const Chunk& chunk : chunks) seconds += seconds_of(chunk);
  return seconds;
}

// One kept chunk computes nothing again, and its slowest rank is no slower than those of its parts together.
double least_seconds(const ChunkShape& shape, const CostModel& cost, const BlockLoads& loads,
                     std::int64_t units, std::int64_t transfers) {
  const Chunk whole{0, units, true};
  return step_seconds(shape, cost, loads, {&whole, 1}, units, transfers);
}

}  // namespace evenkeel
