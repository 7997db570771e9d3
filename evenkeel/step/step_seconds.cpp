#include "evenkeel/step/step_seconds.h"

#include <algorithm>

#include "evenkeel/cost/links.h"

namespace evenkeel {

StepExpert step_expert(const ChunkShape& shape) {
  const auto bytes = static_cast<double>(shape.weight_bytes);
  return {{.elements = bytes / static_cast<double>(shape.element_bytes),
           .outputs = static_cast<double>(shape.row_outputs),
           .bytes = bytes},
          static_cast<double>(shape.gradient_bytes)};
}

StepSeconds::StepSeconds(StepPass pass, const StepExpert& expert, const Machine& machine,
                         const BlockLoads& loads, std::int64_t units, std::int64_t transfers)
    : loads_(loads),
      block_units_(units / loads.num_blocks()),
      backward_(pass == StepPass::backward),
      position_(row_seconds(machine, expert.work)),
      group_(read_seconds(machine, expert.work.bytes)),
      not_overlapped_(1 - machine.overlap),
      gradients_(expert.work.bytes > 0 ? 8 * expert.work.elements / expert.work.bytes : 0),
      fixed_(machine.chunk_seconds + machine.products_seconds) {
  const double bytes = expert.work.bytes + (backward_ ? expert.gradient_bytes : 0);
  transfer_seconds_ = transfer_seconds(machine, static_cast<double>(transfers) * bytes);
}

double StepSeconds::of(const Chunk& chunk) const {
  const auto begin = static_cast<int>(chunk.begin / block_units_);
  const auto end = static_cast<int>((chunk.end + block_units_ - 1) / block_units_);
  const double part =
      static_cast<double>(chunk.end - chunk.begin) / static_cast<double>((end - begin) * block_units_);
  return slowest(begin, end, part, chunk.kept, 1) + fixed_;
}

// Seconds of the slowest rank for `chunks` equal chunks that together have the share `part` of the blocks'
// load. Backward does twice the products of forward, and also reads and writes f32 gradients. Recomputing
// repeats two of the three products.
double StepSeconds::slowest(int begin, int end, double part, bool kept, std::int64_t chunks) const {
  const double more = kept ? 0 : 2.0 / 3;
  const double of_position = position_ * (backward_ ? 2 + more : 1);
  const double of_group = group_ * (backward_ ? 1 + more + gradients_ : 1);
  const double part_of_chunk = part / static_cast<double>(chunks);
  double slowest = 0;
  loads_.for_each_positions(begin, end, [&](RankId rank, std::int64_t count) {
    const BlockLoads::GroupShares groups = loads_.group_shares(rank);
    const double positions = part_of_chunk * static_cast<double>(count);
    const double at_most = std::min(positions, static_cast<double>(groups.of_each.size()));
    // This rank is not slower than the slowest so far, even if nothing overlaps.
    if (positions * of_position + at_most * of_group <= slowest) return;
    slowest = std::max(slowest, of_groups(groups, positions, of_position, of_group));
  });
  return slowest * static_cast<double>(chunks);
}

// If an expert has less than one row per chunk, it is assumed to have one row in that fraction of the chunks.
double StepSeconds::of_groups(const BlockLoads::GroupShares& groups, double positions, double of_position,
                              double of_group) const {
  const double least = positions * groups.least, largest = positions * groups.largest;
  const double products = positions * of_position;
  double weights = static_cast<double>(groups.of_each.size()) * of_group;
  double longer = products;
  if (least >= 1 && largest * of_position <= of_group) {
    longer = weights;
  } else if (least < 1 || least * of_position < of_group) {
    longer = weights = 0;
    for (const double share : groups.of_each) {
      const double rows = share * positions;
      const double of_weights = std::min(rows, 1.0) * of_group;
      longer += std::max(rows * of_position, of_weights);
      weights += of_weights;
    }
  }
  return longer + not_overlapped_ * (products + weights - longer);
}

double StepSeconds::of_all(std::span<const Chunk> chunks) const {
  double seconds = transfer_seconds_;
  for (const Chunk& chunk : chunks) seconds += of(chunk);
  return seconds;
}

double StepSeconds::of_equal(std::int64_t chunks) const {
  return transfer_seconds_ + slowest(0, loads_.num_blocks(), 1, false, chunks) +
         static_cast<double>(chunks) * fixed_;
}

}  // namespace evenkeel
