#include "evenkeel/budget/kept_whole.h"

#include <algorithm>

namespace evenkeel {

KeptWhole::KeptWhole(const ChunkShape& shape, const BlockLoads& loads, const ForeignBytes& foreign)
    : shape_(shape), blocks_(loads), foreign_(foreign) {
  loads_.reserve(static_cast<std::size_t>(shape.num_ranks));
}

Chunk KeptWhole::chunk(std::span<const RankMemory> memories, std::int64_t units, double most) {
  constexpr double kDoesNotFit = 2;
  loads_.clear();
  Chunk chunk{0, units, true};
  for (std::size_t rank = 0; rank < memories.size() && !chunk.in_parts; ++rank)
    chunk.in_parts = !fits_at_once(rank, memories[rank]);
  for (std::size_t rank = 0; rank < memories.size() && chunk.in_parts && chunk.recomputed <= most; ++rank)
    chunk.recomputed =
        std::max(chunk.recomputed, recomputed_in_parts(rank, memories[rank]).value_or(kDoesNotFit));
  if (chunk.recomputed > 0 && chunk.recomputed <= most && !fits_the_rest(memories))
    chunk.recomputed = kDoesNotFit;
  return chunk;
}

// Asked for in the order of the ranks.
const ChunkLoad& KeptWhole::load(std::size_t rank) {
  if (rank == loads_.size())
    loads_.push_back(blocks_.load(RankId(static_cast<int>(rank)), 0, blocks_.num_blocks()));
  return loads_[rank];
}

// Whether a rank can keep all, and have its backward pass at once.
bool KeptWhole::fits_at_once(std::size_t rank, const RankMemory& memory) {
  const ChunkLoad& load = this->load(rank);
  const std::int64_t saved = saved_bytes(shape_, load.positions_here);
  return saved <= bytes_to_keep(rank, memory) &&
         saved <= memory.gap - foreign_.in_backward(rank) - backward_bytes(shape_, load, 0);
}

// Where the backward pass is in parts, the share of a rank's activations that does not stay; none where it
// does not fit.
std::optional<double> KeptWhole::recomputed_in_parts(std::size_t rank, const RankMemory& memory) {
  const ChunkLoad& load = this->load(rank);
  const ForeignLoad& foreign = foreign_.load(rank);
  const std::int64_t own_available =
      std::min(bytes_to_keep(rank, memory), memory.gap - own_part_bytes(shape_, load, {}));
  const std::int64_t foreign_available = memory.gap - foreign_part_bytes(shape_, load, foreign, 0);
  const std::int64_t returning_available = memory.gap - returning_part_bytes(shape_, load, foreign);
  if (std::min({own_available, foreign_available, returning_available}) < 0) return std::nullopt;
  const std::int64_t saved = saved_in_parts(shape_, load, foreign, own_available, foreign_available).all();
  if (saved == load.positions_here) return 0.0;
  return 1 - static_cast<double>(saved) / static_cast<double>(load.positions_here);
}

// For activations, beside what forward needs and other steps want.
std::int64_t KeptWhole::bytes_to_keep(std::size_t rank, const RankMemory& memory) {
  const ChunkLoad& load = this->load(rank);
  return std::min(std::min(memory.held, memory.gap - memory.least) - held_bytes(shape_, load, 0),
                  memory.gap - foreign_.in_forward(rank) - forward_bytes(shape_, load, 0));
}

// Whether what does not stay can be computed again in one piece, when the rest is gone.
bool KeptWhole::fits_the_rest(std::span<const RankMemory> memories) {
  for (std::size_t rank = 0; rank < memories.size(); ++rank)
    if (again_part_bytes(shape_, load(rank), foreign_.load(rank)) > memories[rank].gap) return false;
  return true;
}

}  // namespace evenkeel
