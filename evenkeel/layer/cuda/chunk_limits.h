// Chooses the size of a chunk's buffers and the largest number of chunks of a step, within the budget.
//
// Problem    Launches, buffers and grids are fixed at construction, but the routing is known only when the
//            device runs. So the finest cut must fit for any routing.
// Method     A step is cut into a power of two of equal chunks. In the worst case all assignments of a chunk
//            go to one rank, and that many positions must fit. most_chunks is the smallest number of chunks
//            whose worst case fits. The buffers then get as many positions as the budget allows, so that most
//            steps need fewer chunks.
// Guarantee  The buffers are within the budget, and with most_chunks any routing fits the positions.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "evenkeel/base/error.h"

namespace evenkeel::cuda {

inline constexpr int kMostChunks = 64;
// Approximate number of tokens in a slice.
inline constexpr std::int64_t kSliceTokens = 128;

struct ChunkLimits {
  int most_chunks = 1;
  int num_slices = 1;
  std::int64_t most_positions = 0;
};

// The most assignments that one rank can get in one of `chunks` chunks if every rank has `max_tokens`.
constexpr std::int64_t worst_positions(int ranks, std::int64_t max_tokens, int top_k, int chunks) {
  return ranks * ((max_tokens + chunks - 1) / chunks) * top_k;
}

// The least budget into which some cut fits. bytes(most_chunks, positions) must grow with both arguments. The
// finest cut is not always the smallest, because the tables per chunk can outweigh the rows.
template <class Bytes>
std::int64_t least_bytes(int ranks, std::int64_t max_tokens, int top_k, const Bytes& bytes) {
  std::int64_t least = bytes(1, worst_positions(ranks, max_tokens, top_k, 1));
  for (int chunks = 2; chunks <= kMostChunks && chunks / 2 < max_tokens; chunks *= 2)
    least = std::min(least, bytes(chunks, worst_positions(ranks, max_tokens, top_k, chunks)));
  return least;
}

// A negative budget means no limit. Throws BudgetTooSmall if no cut fits.
template <class Bytes>
ChunkLimits fit_chunks(int ranks, std::int64_t max_tokens, int top_k, std::int64_t budget,
                       const Bytes& bytes) {
  const auto fits = [&](int chunks, std::int64_t positions) {
    return budget < 0 || bytes(chunks, positions) <= budget;
  };
  const auto worst = [&](int chunks) { return worst_positions(ranks, max_tokens, top_k, chunks); };
  if (const std::int64_t least = least_bytes(ranks, max_tokens, top_k, bytes); budget >= 0 && budget < least)
    throw BudgetTooSmall(
        budget, least,
        "max_tokens " + std::to_string(max_tokens) + " on " + std::to_string(ranks) + " ranks of a GPU");
  ChunkLimits limits;
  while (!fits(limits.most_chunks, worst(limits.most_chunks))) limits.most_chunks *= 2;
  std::int64_t low = worst(limits.most_chunks);
  std::int64_t high = worst(1);
  while (low < high) {
    const std::int64_t middle = high - (high - low) / 2;
    if (fits(limits.most_chunks, middle))
      low = middle;
    else
      high = middle - 1;
  }
  limits.most_positions = low;
  const std::int64_t slices = (max_tokens + kSliceTokens - 1) / kSliceTokens;
  limits.num_slices = limits.most_chunks * static_cast<int>(std::max<std::int64_t>(
                                               (slices + limits.most_chunks - 1) / limits.most_chunks, 1));
  return limits;
}

}  // namespace evenkeel::cuda
