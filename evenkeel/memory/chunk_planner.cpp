#include "evenkeel/memory/chunk_planner.h"

#include <algorithm>

namespace evenkeel {

namespace {

// `fullest` is asked first: where the last run of blocks did not fit, this one probably does not either.
bool fits(const ChunkShape& shape, const BlockLoads& loads, LoadBytes bytes,
          std::span<const std::int64_t> limits, int begin, int end, RankId& fullest) {
  const auto too_much = [&](RankId rank) {
    return bytes(shape, loads.load(rank, begin, end)) > limits[rank.offset()];
  };
  if (too_much(fullest)) return false;
  for (RankId rank : indices<RankId>(loads.num_ranks()))
    if (rank != fullest && too_much(rank)) {
      fullest = rank;
      return false;
    }
  return true;
}

// The largest value in [low, high] of which `holds`, and of all below it; of `low` nobody asks.
template <class Integer, class Predicate>
Integer largest(Integer low, Integer high, const Predicate& holds) {
  while (low < high) {
    const Integer middle = high - (high - low) / 2;
    if (holds(middle))
      low = middle;
    else
      high = middle - 1;
  }
  return low;
}

}  // namespace

bool cut_into_chunks(const ChunkShape& shape, const BlockLoads& loads, LoadBytes bytes,
                     std::span<const std::int64_t> limits, int begin, std::int64_t units,
                     std::vector<Chunk>& chunks) {
  const std::int64_t tightest = std::ranges::min(limits);
  const auto any_routing_fits = [&](std::int64_t tokens) {
    return bytes(shape, largest_load(shape, tokens)) <= tightest;
  };
  const int blocks = loads.num_blocks();
  const std::int64_t block_units = units / blocks;
  const std::size_t before = chunks.size();
  RankId fullest(0);
  std::int64_t part = 0;  // units that fit whatever the routing, once asked for
  while (begin < blocks) {
    const auto fits_up_to = [&](int to) { return fits(shape, loads, bytes, limits, begin, to, fullest); };
    // Mostly all that is left fits.
    const int end = fits_up_to(blocks) ? blocks : largest(begin, blocks - 1, fits_up_to);
    if (end > begin) {
      chunks.push_back({begin * block_units, end * block_units});
      begin = end;
      continue;
    }
    if (part == 0) {
      if (!any_routing_fits(1)) {
        chunks.resize(before);
        return false;
      }
      part = largest(std::int64_t{1}, block_units, any_routing_fits);
    }
    const std::int64_t parts = (block_units + part - 1) / part;
    for (std::int64_t i = 0; i < parts; ++i)
      chunks.push_back({begin * block_units + block_units * i / parts,
                        begin * block_units + block_units * (i + 1) / parts});
    ++begin;
  }
  return true;
}

}  // namespace evenkeel
