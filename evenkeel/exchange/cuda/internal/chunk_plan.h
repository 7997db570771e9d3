// Chooses the number of chunks of a step and divides its plan among them. As in budget/shares.h, each segment
// gets its proportional share of an expert's first n assignments.
//
// Problem    Find the fewest equal chunks, a power of two, such that no chunk gives a rank more
//            assignments than fit.
// Guarantee  most_chunks always fit: the number was chosen so that all assignments of a chunk fit one rank.
#pragma once

#include <cstdint>

#include "evenkeel/device/cuda/team.h"
#include "evenkeel/exchange/cuda/routes.h"

namespace evenkeel::cuda {

// Calls give(segment, share) for each segment of an expert; the shares divide its first `n` assignments.
template <class Give>
EVENKEEL_HOST_DEVICE void share_out(const PlanView& plan, int expert, std::int32_t n, const Give& give) {
  const int begin = plan.segment_begin[expert], end = plan.segment_begin[expert + 1];
  std::int64_t behind = begin == end ? 0 : plan.segment_end[end - 1];
  for (int i = begin; i < end; ++i) {
    const std::int32_t size = plan.segment_end[i] - (i == begin ? 0 : plan.segment_end[i - 1]);
    const auto share = static_cast<std::int32_t>(std::int64_t{n} * size / behind);
    give(i, share);
    n -= share;
    behind -= size;
  }
}

// The expert's load from all ranks in the finest chunks [begin, end).
EVENKEEL_HOST_DEVICE inline std::int32_t load_of(const RouteShape& shape, const std::int32_t* counts,
                                                 int expert, int begin, int end) {
  std::int32_t load = 0;
  for (int i = begin * shape.num_ranks; i < end * shape.num_ranks; ++i)
    load += counts[i * shape.num_experts + expert];
  return load;
}

// The largest load of a rank in any of `num_chunks` chunks. `loads` [P] is scratch memory of the team.
template <class Team>
EVENKEEL_HOST_DEVICE std::int32_t most_of_chunks(const Team& team, const RouteShape& shape,
                                                 const StepView& step, int num_chunks, std::int32_t* loads) {
  const int each = shape.most_chunks / num_chunks;
  std::int32_t most = 0;
  for (int chunk = 0; chunk < num_chunks; ++chunk) {
    team.for_each(shape.num_ranks, [&](int r) { loads[r] = 0; });
    team.sync();
    team.for_each(shape.num_experts, [&](int e) {
      const std::int32_t before = load_of(shape, step.counts, e, 0, chunk * each);
      const std::int32_t after = before + load_of(shape, step.counts, e, chunk * each, (chunk + 1) * each);
      share_out(step.plan, e, after,
                [&](int i, std::int32_t n) { add(&loads[step.plan.segment_rank[i]], n); });
      share_out(step.plan, e, before,
                [&](int i, std::int32_t n) { add(&loads[step.plan.segment_rank[i]], -n); });
    });
    team.sync();
    std::int32_t own = 0;
    team.for_each(shape.num_ranks, [&](int r) { own = loads[r] > own ? loads[r] : own; });
    own = team.max(own);
    most = own > most ? own : most;
    team.sync();
  }
  return most;
}

template <class Team>
EVENKEEL_HOST_DEVICE void choose_chunks(const Team& team, const RouteShape& shape, const StepView& step,
                                        std::int32_t* loads) {
  int chunks = 1;
  while (chunks < shape.most_chunks &&
         most_of_chunks(team, shape, step, chunks, loads) > shape.most_positions)
    chunks *= 2;
  team.for_each(1, [&](int) { *step.num_chunks = chunks; });
  team.sync();
}

// Fills the counts and quotas of a chunk; zeros for a chunk beyond the last.
template <class Team>
EVENKEEL_HOST_DEVICE void plan_chunk(const Team& team, const RouteShape& shape, const StepView& step,
                                     int chunk, const ChunkView& view) {
  const int chunks = *step.num_chunks;
  const int each = shape.most_chunks / chunks;
  const int begin = chunk < chunks ? chunk * each : shape.most_chunks;
  const int end = chunk < chunks ? begin + each : begin;
  team.for_each(shape.num_ranks * shape.num_experts, [&](int i) {
    std::int32_t count = 0;
    for (int block = begin; block < end; ++block)
      count += step.counts[block * shape.num_ranks * shape.num_experts + i];
    view.counts[i] = count;
  });
  team.for_each(shape.num_experts, [&](int e) {
    const std::int32_t before = load_of(shape, step.counts, e, 0, begin);
    const std::int32_t after = before + load_of(shape, step.counts, e, begin, end);
    share_out(step.plan, e, after, [&](int i, std::int32_t n) { view.quota[i] = n; });
    share_out(step.plan, e, before, [&](int i, std::int32_t n) { view.quota[i] -= n; });
  });
  team.sync();
}

}  // namespace evenkeel::cuda
