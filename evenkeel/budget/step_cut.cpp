#include "evenkeel/budget/step_cut.h"

#include <algorithm>
#include <functional>
#include <limits>

#include "evenkeel/training_memory/mact.h"

namespace evenkeel {

StepCut::StepCut(const ChunkShape& shape, const MemoryOptions& options, const BlockLoads& loads,
                 std::int64_t units)
    : shape_(shape), options_(options), loads_(loads), units_(units) {
  for (auto* by_rank : {&halves_, &most_}) by_rank->reserve(static_cast<std::size_t>(shape.num_ranks));
}

bool StepCut::cut(const PassBytes& bytes, std::vector<std::int64_t>& limits, const TimeLimit& time,
                  std::vector<Chunk>& chunks) {
  chunks.clear();
  return cut_by_rule(bytes, limits, chunks) || cut_exactly(bytes, limits, 0, time, chunks);
}

bool StepCut::cut_exactly(const PassBytes& bytes, std::span<const std::int64_t> limits, int begin,
                          const TimeLimit& time, std::vector<Chunk>& chunks) {
  if (options_.chunks_in_flight == 1) return cut_while_faster(bytes.alone, limits, begin, time, chunks);
  const std::size_t before = chunks.size();
  if (!cut_into_chunks(shape_, loads_, bytes.alone, limits, begin, units_, chunks)) return false;
  if (chunks.size() - before <= 1) return true;
  chunks.erase(chunks.begin() + static_cast<std::ptrdiff_t>(before), chunks.end());
  return cut_while_faster(bytes.overlapped, halves_of(bytes, limits), begin, time, chunks);
}

// Bytes that each of two chunks in flight may take, by rank.
std::span<const std::int64_t> StepCut::halves_of(const PassBytes& bytes,
                                                 std::span<const std::int64_t> limits) {
  halves_.clear();
  for (std::int64_t limit : limits) halves_.push_back(bytes.half_of(limit, shape_));
  return halves_;
}

// Two are in flight only where there are two. Of `tokens` in all units, any u of these have no more than
// tokens * u / units, rounded up.
bool StepCut::cut_for_any_routing(const PassBytes& bytes, const PlanExperts& experts,
                                  std::span<const std::int64_t> limits, std::int64_t tokens,
                                  std::vector<Chunk>& chunks) {
  chunks.clear();
  tokens = std::max<std::int64_t>(tokens, 1);
  std::int64_t at_once = tokens_of_any_routing(shape_, bytes.alone, experts, limits, tokens);
  if (at_once < tokens && options_.chunks_in_flight > 1)
    at_once = tokens_of_any_routing(shape_, bytes.overlapped, experts, halves_of(bytes, limits), tokens);
  if (at_once == 0) return false;
  const std::int64_t chunk_units = at_once * units_ / tokens;
  const std::int64_t asked = options_.rule.kind == ChunkRule::Kind::equal ? options_.rule.count : 1;
  append_equal(std::clamp(asked, (units_ + chunk_units - 1) / chunk_units, units_), chunks);
  return true;
}

void StepCut::append_equal(std::int64_t count, std::vector<Chunk>& chunks) const {
  for (std::int64_t i = 0; i < count; ++i) chunks.push_back({units_ * i / count, units_ * (i + 1) / count});
}

// Ends where, even if nothing is computed again of the chunks behind those there are, the limit is reached.
bool StepCut::cut_while_faster(LoadBytes bytes, std::span<const std::int64_t> limits, int begin,
                               const TimeLimit& time, std::vector<Chunk>& chunks) const {
  double spent = time.seconds.of_all(chunks);
  auto may_be_fast_enough = [&](const Chunk& last) {  // passed by reference, since a copy would be allocated
    if (time.less_than == std::numeric_limits<double>::infinity()) return true;
    spent += time.seconds.of({last.begin, last.end, true});
    return spent + time.seconds.least_from(last.end) < time.less_than;
  };
  return cut_into_chunks(shape_, loads_, bytes, limits, begin, units_, chunks, std::ref(may_be_fast_enough));
}

bool StepCut::cut_by_rule(const PassBytes& bytes, std::vector<std::int64_t>& limits,
                          std::vector<Chunk>& chunks) {
  if (options_.rule.kind == ChunkRule::Kind::exact) return false;
  const std::int64_t count = count_by_rule(bytes, limits);
  const std::int64_t in_flight = std::min<std::int64_t>(count, options_.chunks_in_flight);
  const LoadBytes bytes_of = in_flight > 1 ? bytes.overlapped : bytes.alone;
  const std::int64_t shared = in_flight > 1 ? whole_lines(shape_.workspace.*bytes.shared) : 0;
  append_equal(count, chunks);
  most_.assign(limits.size(), 0);
  for (const Chunk& chunk : chunks)
    for (RankId rank : indices<RankId>(loads_.num_ranks())) {
      std::int64_t& most = most_[rank.offset()];
      most = std::max(most, shared + in_flight * bytes_of(shape_, covering_load(rank, chunk)));
      if (most > limits[rank.offset()]) {
        chunks.clear();
        return false;
      }
    }
  limits = most_;
  return true;
}

// Eq. 8 and 9 of MemFine, with what a received row takes on the rank with the most of them.
std::int64_t StepCut::count_by_rule(const PassBytes& bytes, std::span<const std::int64_t> limits) const {
  if (options_.rule.kind == ChunkRule::Kind::exact) return 1;
  if (options_.rule.kind == ChunkRule::Kind::equal)
    return std::clamp<std::int64_t>(options_.rule.count, 1, units_);
  const bool overlaps = options_.chunks_in_flight > 1;
  const LoadBytes bytes_of = overlaps ? bytes.overlapped : bytes.alone;
  std::int64_t count = 1;
  for (RankId rank : indices<RankId>(loads_.num_ranks())) {
    const ChunkLoad load = loads_.load(rank, 0, loads_.num_blocks());
    const std::int64_t fixed = bytes_of(shape_, ChunkLoad{});
    const std::int64_t moving = std::max<std::int64_t>(bytes_of(shape_, load) - fixed, 1);
    const std::int64_t limit = limits[rank.offset()];
    const std::int64_t available =
        std::max<std::int64_t>((overlaps ? bytes.half_of(limit, shape_) : limit) - fixed, 0);
    const auto most_received =
        static_cast<std::int64_t>(static_cast<__int128>(load.positions_here) * available / moving);
    count = std::max(count, mact(load.positions_here, most_received, options_.rule.bins).chunks);
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

}  // namespace evenkeel
