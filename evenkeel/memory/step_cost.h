// What a way to carry out a step would take, in seconds: enough to choose between ways, from few numbers.
#pragma once

#include <cstdint>
#include <span>

#include "evenkeel/memory/block_loads.h"
#include "evenkeel/memory/chunk_planner.h"
#include "evenkeel/memory/memory_options.h"

namespace evenkeel {

// The time of the slowest rank in each chunk, summed; backward included where the shape has it. `transfers`
// is the most expert weights that one rank borrows; `units` as for cut_into_chunks().
class StepSeconds {
 public:
  StepSeconds(const ChunkShape& shape, const CostModel& cost, const BlockLoads& loads, std::int64_t units,
              std::int64_t transfers);

  // A part of a block is taken to have its share of the block's load.
  double of(const Chunk& chunk) const;
  // Of these, and of weights on their way.
  double of_all(std::span<const Chunk> chunks) const;
  // Less than which nothing takes that is done with the units from `begin` on.
  double least_from(std::int64_t begin) const;

 private:
  const BlockLoads& loads_;
  std::int64_t units_;
  std::int64_t block_units_;
  bool with_backward_;
  double position_;          // of one position's forward pass
  double group_;             // of reading one expert's weights
  double gradients_;         // bytes of its gradients, read and written, as a share of the weights'
  double fixed_;             // of any chunk
  double travelling_;        // weights there and gradients back, in all passes
  double travelling_again_;  // weights in one more
};

}  // namespace evenkeel
