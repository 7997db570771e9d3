#include "evenkeel/step/internal/step_cut.h"

#include <algorithm>

#include "evenkeel/training_memory/mact.h"

namespace evenkeel::internal {

StepCut::StepCut(const ChunkRule& rule, const BlockLoads& loads, std::int64_t units)
    : rule_(rule), loads_(loads), units_(units) {}

bool StepCut::cut(const ChunkLimits& limits, std::vector<std::int64_t>& bytes, std::vector<Chunk>& chunks) {
  chunks.clear();
  return cut_by_rule(limits, bytes, chunks) || cut_into_chunks(limits, loads_, 0, units_, chunks);
}

bool StepCut::cut_by_rule(const ChunkLimits& limits, std::vector<std::int64_t>& bytes,
                          std::vector<Chunk>& chunks) {
  if (rule_.kind == ChunkRule::Kind::exact) return false;
  const std::int64_t count = count_by_rule(limits);
  for (std::int64_t i = 0; i < count; ++i) chunks.push_back({units_ * i / count, units_ * (i + 1) / count});
  most_.assign(bytes.size(), 0);
  for (const Chunk& chunk : chunks)
    for (RankId rank : indices<RankId>(loads_.num_ranks())) {
      std::int64_t& most = most_[rank.offset()];
      most = std::max(most, limits.of(rank, covering_load(rank, chunk)));
      if (most > limits.limit(rank)) {
        chunks.clear();
        return false;
      }
    }
  std::ranges::copy(most_, bytes.begin());
  return true;
}

// Eq. 8 and 9 of MemFine, with what a received row takes on the rank with the most of them.
std::int64_t StepCut::count_by_rule(const ChunkLimits& limits) const {
  if (rule_.kind == ChunkRule::Kind::exact) return 1;
  if (rule_.kind == ChunkRule::Kind::equal) return std::clamp<std::int64_t>(rule_.count, 1, units_);
  std::int64_t count = 1;
  for (RankId rank : indices<RankId>(loads_.num_ranks())) {
    const ChunkLoad load = loads_.load(rank, 0, loads_.num_blocks());
    const std::int64_t fixed = limits.of(rank, {});
    const std::int64_t moving = std::max<std::int64_t>(limits.of(rank, load) - fixed, 1);
    const std::int64_t available = std::max<std::int64_t>(limits.limit(rank) - fixed, 0);
    const auto most_received =
        static_cast<std::int64_t>(static_cast<__int128>(load.positions_here) * available / moving);
    count = std::max(count, mact(load.positions_here, most_received, rule_.bins).chunks);
  }
  return std::min(count, units_);
}

ChunkLoad StepCut::covering_load(RankId rank, const Chunk& chunk) const {
  const std::int64_t block_units = units_ / loads_.num_blocks();
  const auto begin = static_cast<int>(chunk.begin / block_units);
  const auto end = static_cast<int>((chunk.end + block_units - 1) / block_units);
  const bool whole = chunk.begin % block_units == 0 && chunk.end % block_units == 0;
  return whole ? loads_.load(rank, begin, end) : loads_.bound(rank, begin, end);
}

}  // namespace evenkeel::internal
