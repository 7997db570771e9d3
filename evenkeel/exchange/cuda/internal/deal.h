// The deal (plan/deal.h) of a chunk, for one rank: which of its assignments go where, and what
// it receives.
//
// Method  Experts are dealt in parallel, one lane per expert. Local assignments are dealt first. Then the
//         other assignments, ordered by source rank, fill the segments in order. How far local assignments
//         fill a segment is computed from the segments before it, so a lane stores nothing per rank.
// Cost    O((P + S^2) E / lanes) for S segments per expert, and scans over P E numbers.
#pragma once

#include <cstdint>

#include "evenkeel/base/host_device.h"
#include "evenkeel/exchange/cuda/routes.h"

namespace evenkeel::cuda {

class ExpertDeal {
 public:
  EVENKEEL_HOST_DEVICE ExpertDeal(const RouteShape& shape, const PlanView& plan, const ChunkView& chunk,
                                  int expert)
      : shape_(shape),
        plan_(plan),
        chunk_(chunk),
        expert_(expert),
        begin_(plan.segment_begin[expert]),
        end_(plan.segment_begin[expert + 1]) {}

  // Fills the expert's columns of `sent` and `arrived` with counts, and fills its pieces.
  EVENKEEL_HOST_DEVICE void make() {
    for (int r = 0; r < shape_.num_ranks; ++r) chunk_.sent[at(r)] = chunk_.arrived[at(r)] = 0;
    for (int r = 0; r < shape_.num_ranks; ++r) move(r, r, kept(r));
    int segment = begin_;
    std::int32_t open_here = segment < end_ ? open(segment) : 0;
    for (int source = 0; source < shape_.num_ranks; ++source) {
      std::int32_t rest = chunk_.counts[at(source)] - kept(source);
      while (rest > 0) {
        while (open_here == 0) {
          ++segment;
          EVENKEEL_DEVICE_CHECK(segment < end_);
          open_here = open(segment);
        }
        const std::int32_t count = rest < open_here ? rest : open_here;
        move(source, plan_.segment_rank[segment], count);
        rest -= count;
        open_here -= count;
      }
    }
    chunk_.pieces[expert_] = pieces_;
  }

 private:
  EVENKEEL_HOST_DEVICE int at(int rank) const { return rank * shape_.num_experts + expert_; }

  // Number of the rank's own assignments that it computes itself.
  EVENKEEL_HOST_DEVICE std::int32_t kept(int rank) const {
    std::int32_t quota = 0;
    for (int i = begin_; i < end_; ++i) quota += plan_.segment_rank[i] == rank ? chunk_.quota[i] : 0;
    const std::int32_t own = chunk_.counts[at(rank)];
    return own < quota ? own : quota;
  }

  // The part of a segment left to other ranks' assignments. A rank's own assignments fill its first segments.
  EVENKEEL_HOST_DEVICE std::int32_t open(int segment) const {
    const int rank = plan_.segment_rank[segment];
    std::int32_t local = kept(rank);
    for (int i = begin_; i < segment; ++i)
      if (plan_.segment_rank[i] == rank) local -= local < chunk_.quota[i] ? local : chunk_.quota[i];
    const std::int32_t size = chunk_.quota[segment];
    return size - (local < size ? local : size);
  }

  EVENKEEL_HOST_DEVICE void move(int from, int to, std::int32_t count) {
    if (count == 0) return;
    if (from == shape_.me) {
      const int piece = begin_ + expert_ + pieces_++;
      chunk_.piece_rank[piece] = to;
      chunk_.piece_count[piece] = count;
      chunk_.sent[at(to)] += count;
    }
    if (to == shape_.me) chunk_.arrived[at(from)] += count;
  }

  const RouteShape& shape_;
  const PlanView& plan_;
  const ChunkView& chunk_;
  int expert_;
  int begin_;
  int end_;
  int pieces_ = 0;
};

// Makes the deal and the offsets that follow from it. `sent` and `arrived` become exclusive sums over the
// experts, the outbox gets the begin of each message, and group_begin the begin of each group.
template <class Team>
EVENKEEL_HOST_DEVICE void deal_chunk(const Team& team, const RouteShape& shape, const StepView& step,
                                     const ChunkView& chunk, const OutboxView& outbox) {
  const int experts = shape.num_experts, ranks = shape.num_ranks;
  team.for_each(experts, [&](int e) { ExpertDeal(shape, step.plan, chunk, e).make(); });
  team.for_each(shape.num_groups(), [&](int g) { chunk.group_begin[g] = 0; });
  team.sync();
  team.for_each(experts, [&](int e) {
    std::int32_t here = 0;
    for (int r = 0; r < ranks; ++r) here += chunk.arrived[r * experts + e];
    EVENKEEL_DEVICE_CHECK(here == 0 || step.group_of[e] >= 0);
    if (here > 0) chunk.group_begin[step.group_of[e]] = here;
  });
  team.sync();
  const std::int32_t positions = exclusive_scan(team, chunk.group_begin, shape.num_groups());
  EVENKEEL_DEVICE_CHECK(positions <= shape.most_positions);
  for (int r = 0; r < ranks; ++r) {
    const std::int32_t sent = exclusive_scan(team, chunk.sent + r * experts, experts);
    const std::int32_t arrived = exclusive_scan(team, chunk.arrived + r * experts, experts);
    team.for_each(1, [&](int) {
      outbox.begin[r] = sent;
      outbox.in_position[r] = arrived;
    });
  }
  const std::int32_t all_sent = exclusive_scan(team, outbox.begin, ranks);
  const std::int32_t all_here = exclusive_scan(team, outbox.in_position, ranks);
  team.for_each(1, [&](int) {
    chunk.group_begin[shape.num_groups()] = positions;
    outbox.begin[ranks] = all_sent;
    outbox.in_position[ranks] = all_here;
  });
  team.sync();
}

}  // namespace evenkeel::cuda
