// The time that a way to carry out a step would take, in seconds: enough to choose between ways, from few
// numbers.
//
// An expert's products take what cost/machine.h says. A rank's rows are taken to fall to its experts in
// every chunk as they do in the whole step.
#pragma once

#include <cstdint>
#include <span>

#include "evenkeel/budget/block_loads.h"
#include "evenkeel/budget/chunk_planner.h"
#include "evenkeel/cost/machine.h"

namespace evenkeel {

enum class StepPass { forward, backward };

// An expert as its products and its journeys see it.
struct StepExpert {
  ExpertWork work;
  double gradient_bytes = 0;  // that travel home in backward
};
StepExpert step_expert(const ChunkShape& shape);

// Of one pass, the time of the slowest rank in each chunk, summed. `transfers` is the most expert weights
// that one rank borrows; `units` as for cut_into_chunks().
class StepSeconds {
 public:
  StepSeconds(StepPass pass, const StepExpert& expert, const Machine& machine, const BlockLoads& loads,
              std::int64_t units, std::int64_t transfers);

  // Seconds of one chunk. A part of a block is taken to have its share of the block's load.
  double of(const Chunk& chunk) const;
  // Seconds of all these chunks, and of weights on their way.
  double of_all(std::span<const Chunk> chunks) const;
  // As of_all(), for the whole step in so many chunks, none kept, each with an equal share of every rank's
  // load. O(P).
  double of_equal(std::int64_t chunks) const;

 private:
  double slowest(int begin, int end, double part, bool kept, std::int64_t chunks) const;
  double of_groups(const BlockLoads::GroupShares& groups, double positions, double of_position,
                   double of_group) const;

  const BlockLoads& loads_;
  std::int64_t block_units_;
  bool backward_;
  double position_;    // of one position's forward pass, at its expert with many others
  double group_;       // of reading one expert's weights
  double shown_;       // of the shorter of both
  double gradients_;   // bytes of its gradients, read and written, as a share of the weights'
  double fixed_;       // of any chunk
  double travelling_;  // weights there and, in backward, gradients back
};

}  // namespace evenkeel
