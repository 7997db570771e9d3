// Predicts the time of a candidate for a step from few numbers, closely enough to compare candidates.
//
// An expert's products take the time that cost/machine.h predicts. In every chunk, a rank's rows are assumed
// to be divided over its experts in the same proportions as in the whole step.
#pragma once

#include <cstdint>
#include <span>

#include "evenkeel/budget/block_loads.h"
#include "evenkeel/budget/chunk_planner.h"
#include "evenkeel/cost/machine.h"

namespace evenkeel {

enum class StepPass { forward, backward };

// An expert's sizes for products and transfers.
struct StepExpert {
  ExpertWork work;
  double gradient_bytes = 0;  // bytes that go back to the owner in backward
};
StepExpert step_expert(const ChunkShape& shape);

// Seconds of one pass: the time of the slowest rank in each chunk, summed. `transfers` is the number of
// experts borrowed by the rank that borrows the most; `units` is as for cut_into_chunks().
class StepSeconds {
 public:
  StepSeconds(StepPass pass, const StepExpert& expert, const Machine& machine, const BlockLoads& loads,
              std::int64_t units, std::int64_t transfers);

  // Seconds of one chunk. A part of a block is assumed to have a proportional part of the block's load.
  double of(const Chunk& chunk) const;
  // Seconds of all these chunks, plus those of sending weights.
  double of_all(std::span<const Chunk> chunks) const;
  // As of_all(), for the whole step in `chunks` chunks of which none is kept. Each has an equal share of
  // every rank's load. O(P).
  double of_equal(std::int64_t chunks) const;

 private:
  double slowest(int begin, int end, double part, bool kept, std::int64_t chunks) const;
  double of_groups(const BlockLoads::GroupShares& groups, double positions, double of_position,
                   double of_group) const;

  const BlockLoads& loads_;
  std::int64_t block_units_;
  bool backward_;
  double position_;          // seconds of one position in forward, if its expert has many positions
  double group_;             // seconds to read one expert's weights
  double not_overlapped_;    // part of the shorter of position_ and group_ times that does not overlap
  double gradients_;         // bytes of reading and writing an expert's gradients, relative to its weights
  double fixed_;             // seconds of a chunk without its products
  double transfer_seconds_;  // seconds of sending weights and, in backward, gradients
};

}  // namespace evenkeel
