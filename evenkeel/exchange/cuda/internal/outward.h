// Makes a rank's outbox from its top-k choices. Each function handles one assignment, entry or tile. Call
// them in the order below, and run each for all its items before the next.
#pragma once

#include <cstdint>

#include "evenkeel/exchange/cuda/chunk_sizes.h"
#include "evenkeel/exchange/cuda/routes.h"

namespace evenkeel::cuda {

class Outward {
 public:
  EVENKEEL_HOST_DEVICE Outward(const RouteShape& shape, const SliceView& slices, const StepView& step,
                               const ChunkView& chunk, const OutboxView& outbox, int chunk_index)
      : shape_(shape), slices_(slices), step_(step), chunk_(chunk), outbox_(outbox) {
    range_ = slices_of(shape, chunk_index, *step.num_chunks);
    first_token_ = first_token(shape, slices.tokens, range_.first);
  }

  // The chunk's assignments are [0, assignments()); add first_assignment() for their index in the step.
  EVENKEEL_HOST_DEVICE std::int64_t first_assignment() const { return first_token_ * shape_.top_k; }
  EVENKEEL_HOST_DEVICE int assignments() const {
    const std::int64_t end = first_token(shape_, slices_.tokens, range_.end);
    return static_cast<int>((end - first_token_) * shape_.top_k);
  }
  EVENKEEL_HOST_DEVICE int entries() const { return outbox_.begin[shape_.num_ranks]; }

  // Finds the destination rank of an assignment and its entry in the message.
  EVENKEEL_HOST_DEVICE void place(int a) const {
    const std::int64_t in_step = first_assignment() + a;
    const std::int32_t expert = slices_.experts[in_step];
    chunk_.entry[a] = -1;
    chunk_.destination[a] = -1;
    if (expert < 0) return;
    std::int32_t turn = turn_of(in_step, expert);
    const int begin = step_.plan.segment_begin[expert] + expert;
    int piece = begin;
    while (turn >= chunk_.piece_count[piece]) turn -= chunk_.piece_count[piece++];
    const std::int32_t rank = chunk_.piece_rank[piece];
    for (int i = begin; i < piece; ++i) turn += chunk_.piece_rank[i] == rank ? chunk_.piece_count[i] : 0;
    const std::int32_t entry = outbox_.begin[rank] + chunk_.sent[rank * shape_.num_experts + expert] + turn;
    chunk_.entry[a] = entry;
    chunk_.destination[a] = rank;
    outbox_.assignment[entry] = static_cast<std::int32_t>(in_step);
  }

  // Whether an entry is the first of its token in the message.
  EVENKEEL_HOST_DEVICE bool is_first(int entry) const { return first_entry(entry) == entry; }

  // Counts the tile's entries for which is_first() holds.
  template <class Team>
  EVENKEEL_HOST_DEVICE void count_firsts(const Team& team, int tile) const {
    std::int32_t own = 0;
    for_tile(team, tile, [&](int entry) { own += is_first(entry) ? 1 : 0; });
    const std::int32_t all = team.sum(own);
    if (team.rank() == 0) chunk_.tile_firsts[tile] = all;
  }

  // Fills firsts_before for the tile's entries; the element after the last entry gets the total.
  template <class Team>
  EVENKEEL_HOST_DEVICE void number_firsts(const Team& team, int tile) const {
    std::int32_t own = 0;
    team.for_each(tile, [&](int t) { own += chunk_.tile_firsts[t]; });
    std::int32_t before = team.sum(own);
    const int end = end_of(tile);
    for (int base = tile * kTile; base < end; base += team.size()) {
      const int entry = base + team.rank();
      std::int32_t all = 0;
      const std::int32_t mine = entry < end && is_first(entry) ? 1 : 0;
      const std::int32_t ahead = team.sum_before(mine, all);
      if (entry < end) chunk_.firsts_before[entry] = before + ahead;
      before += all;
    }
    if (team.rank() == 0 && end == entries()) chunk_.firsts_before[end] = before;
  }

  // Writes which row an entry reads; a first entry also writes the row's token.
  EVENKEEL_HOST_DEVICE void number_row(int entry) const {
    const int rank = destination_of(entry);
    const std::int32_t row =
        chunk_.firsts_before[first_entry(entry)] - chunk_.firsts_before[outbox_.begin[rank]];
    outbox_.row[entry] = row;
    if (is_first(entry)) outbox_.token[outbox_.begin[rank] + row] = outbox_.assignment[entry] / shape_.top_k;
  }

  // Writes the number of rows sent to a rank.
  EVENKEEL_HOST_DEVICE void count_rows(int rank) const {
    outbox_.rows[rank] = entries() == 0 ? 0
                                        : chunk_.firsts_before[outbox_.begin[rank + 1]] -
                                              chunk_.firsts_before[outbox_.begin[rank]];
  }

 private:
  // The assignment's index among the chunk's assignments to its expert.
  EVENKEEL_HOST_DEVICE std::int32_t turn_of(std::int64_t in_step, int expert) const {
    const std::int64_t token = in_step / shape_.top_k;
    // Finds the token's slice: the last one with first_token <= token. The quotient is a lower estimate.
    int slice = static_cast<int>(token * shape_.num_slices / slices_.tokens);
    while (slice + 1 < shape_.num_slices && first_token(shape_, slices_.tokens, slice + 1) <= token) ++slice;
    const int experts = shape_.num_experts;
    return slices_.before[slice * experts + expert] - slices_.before[range_.first * experts + expert] +
           slices_.rank_in_slice[in_step];
  }

  EVENKEEL_HOST_DEVICE int destination_of(int entry) const {
    return chunk_.destination[outbox_.assignment[entry] - first_assignment()];
  }

  // The lowest entry with the same token and destination.
  EVENKEEL_HOST_DEVICE int first_entry(int entry) const {
    const std::int64_t own = outbox_.assignment[entry] - first_assignment();
    const std::int64_t token = own / shape_.top_k * shape_.top_k;
    int first = entry;
    for (std::int64_t a = token; a < token + shape_.top_k; ++a)
      if (chunk_.destination[a] == chunk_.destination[own] && chunk_.entry[a] < first)
        first = chunk_.entry[a];
    return first;
  }

  EVENKEEL_HOST_DEVICE int end_of(int tile) const {
    const int end = (tile + 1) * kTile;
    return end < entries() ? end : entries();
  }
  template <class Team, class F>
  EVENKEEL_HOST_DEVICE void for_tile(const Team& team, int tile, const F& f) const {
    const int begin = tile * kTile;
    team.for_each(end_of(tile) - begin, [&](int i) { f(begin + i); });
  }

  const RouteShape& shape_;
  const SliceView& slices_;
  const StepView& step_;
  const ChunkView& chunk_;
  const OutboxView& outbox_;
  ChunkRange range_;
  std::int64_t first_token_ = 0;
};

}  // namespace evenkeel::cuda
