// Predicts the time of a candidate for a step, closely enough to compare candidates, from few numbers.
//
// An expert's products take the time that cost/machine.h predicts. Every chunk is assumed to divide a rank's
// rows over its experts as the whole step does.
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
  double gradient_bytes = 0;  // that travel home in backward
};
StepExpert step_expert(const ChunkShape& shape);

// Seconds of one pass: the time of the slowest rank in each chunk, summed. `transfers` is the most expert
// weights that one rank borrows; `units` as for cut_into_chunks().
class StepSeconds {
 public:
  StepSeconds(StepPass pass, const StepExpert& expert, const Machine& machine, const BlockLoads& loads,
              std::int64_t units, std::int64_t transfers);

  // Seconds of one chunk. A part of a block is assumed to have its share of the block's load.
  double of(const Chunk& chunk) const;
  // Seconds of all these chunks and of sending weights.
  double of_all(std::span<const Chunk> chunks) const;
  // As of_all(), for the whole step in `chunks` chunks, none kept, each with an equal share of every rank's
  // load. O(P).
  double of_equal(std::int64_t chunks) const;

 private:
  double slowest(int begin, int end, double part, bool kept, std::int64_t chunks) const;
  double of_groups(const BlockLoads::GroupShares& groups, double positions, double of_position,
                   double of_group) const;

  const BlockLoads& loads_;
  std::int64_t block_units_;
  bool backward_;
  double position_;          // seconds of one position's forward pass, among many of its expert
  double group_;             // seconds to read one expert's weights
  double not_overlapped_;    // part of the shorter of these two that does not overlap
  double gradients_;         // bytes of an expert's gradients, read and written, relative to its weights
  double fixed_;             // seconds of any chunk besides its products
  double transfer_seconds_;  // seconds of sending weights and, in backward, gradients
};

}  // namespace evenkeel
