#include "evenkeel/budget/chunk_planner.h"

#include <algorithm>

namespace evenkeel {

namespace {

// The largest value in [low, high] for which `holds` is true. If `holds` is true for a value, it must be true
// for all smaller ones; for `low` it is assumed to be true. Searches around `guess`, clamped to (low, high],
// in doubling steps, then by bisection.
template <class Integer, class Predicate>
Integer largest(Integer low, Integer high, Integer guess, const Predicate& holds) {
  bool held = false, failed = false;
  for (Integer step = 1; low < high; step *= 2) {
    const Integer middle = held && failed ? high - (high - low) / 2 : std::clamp(guess, low + 1, high);
    if (holds(middle)) {
      held = true;
      low = middle;
      guess = middle + step;
    } else {
      failed = true;
      high = middle - 1;
      guess = middle - step;
    }
  }
  return low;
}

// The end of the longest run from `begin` that fits every rank; `begin` if not even one block fits. Starts
// with `fullest`, the rank that last shortened a run, because it usually limits the next one too. When one
// rank shortens the run, all others are checked again: a shorter run usually takes fewer bytes, but not
// always.
int end_of_run(const ChunkLimits& limits, const BlockLoads& loads, int begin, int& fullest) {
  const auto bytes_of = [&](int rank, int to) {
    return limits.of(RankId(rank), loads.load(RankId(rank), begin, to));
  };
  int end = loads.num_blocks();
  int fit = 0;
  for (int rank = fullest; fit < loads.num_ranks() && end > begin; rank = (rank + 1) % loads.num_ranks()) {
    const std::int64_t limit = limits.limit(RankId(rank));
    const std::int64_t bytes = bytes_of(rank, end);
    if (bytes <= limit) {
      ++fit;
      continue;
    }
    // Guesses that bytes grow linearly with the blocks.
    const std::int64_t fixed = limits.of(RankId(rank), {});
    const std::int64_t guess = begin + (end - begin) * std::max<std::int64_t>(limit - fixed, 0) /
                                           std::max<std::int64_t>(bytes - fixed, 1);
    end =
        largest(begin, end - 1, static_cast<int>(guess), [&](int to) { return bytes_of(rank, to) <= limit; });
    fullest = rank;
    fit = 1;
  }
  return end;
}

}  // namespace

bool cut_into_chunks(const ChunkLimits& limits, const BlockLoads& loads, int begin, std::int64_t units,
                     std::vector<Chunk>& chunks) {
  const int blocks = loads.num_blocks();
  const std::int64_t block_units = units / blocks;
  const std::size_t before = chunks.size();
  int fullest = 0;
  std::int64_t part = 0;  // units that fit under any routing; 0 until computed
  while (begin < blocks) {
    const int end = end_of_run(limits, loads, begin, fullest);
    if (end > begin) {
      chunks.push_back({begin * block_units, end * block_units});
      begin = end;
      continue;
    }
    if (part == 0) part = tokens_of_any_routing(limits, loads, block_units);
    if (part == 0) {
      chunks.resize(before);
      return false;
    }
    const std::int64_t parts = (block_units + part - 1) / part;
    for (std::int64_t i = 0; i < parts; ++i)
      chunks.push_back({begin * block_units + block_units * i / parts,
                        begin * block_units + block_units * (i + 1) / parts});
    ++begin;
  }
  return true;
}

int end_of_run(const ChunkLimits& limits, const BlockLoads& loads, int begin) {
  int fullest = 0;
  return end_of_run(limits, loads, begin, fullest);
}

std::int64_t tokens_of_any_routing(const ChunkLimits& limits, const BlockLoads& loads, std::int64_t most) {
  return largest(std::int64_t{0}, most, most / 2, [&](std::int64_t tokens) {
    const ChunkLoad load = loads.largest(tokens);
    for (RankId rank : indices<RankId>(loads.num_ranks()))
      if (limits.of(rank, load) > limits.limit(rank)) return false;
    return true;
  });
}

// Assumes that a chunk takes what an empty one takes, plus an equal share of what the whole step takes beyond
// that.
std::int64_t estimated_chunks(const ChunkLimits& limits, const BlockLoads& loads, std::int64_t most) {
  std::int64_t chunks = 1;
  for (RankId rank : indices<RankId>(loads.num_ranks())) {
    const std::int64_t fixed = limits.of(rank, {});
    const std::int64_t available = limits.limit(rank) - fixed;
    if (available <= 0) return most;
    const std::int64_t growing = limits.of(rank, loads.load(rank, 0, loads.num_blocks())) - fixed;
    chunks = std::max(chunks, (growing + available - 1) / available);
  }
  return std::min(chunks, most);
}

}  // namespace evenkeel
