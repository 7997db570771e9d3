// Reads the outboxes of all ranks and makes the tables of what this rank computes.
#pragma once

#include <cstdint>

#include "evenkeel/exchange/cuda/routes.h"

namespace evenkeel::cuda {

// The last i in [0, n) with begins[i] <= value. `begins` must be sorted, with begins[0] <= value.
EVENKEEL_HOST_DEVICE inline int last_at_most(const std::int32_t* begins, int n, std::int32_t value) {
  int low = 0, high = n - 1;
  while (low < high) {
    const int middle = high - (high - low) / 2;
    if (begins[middle] <= value)
      low = middle;
    else
      high = middle - 1;
  }
  return low;
}

class Inward {
 public:
  // `outboxes` are those of all ranks.
  EVENKEEL_HOST_DEVICE Inward(const RouteShape& shape, const StepView& step, const ChunkView& chunk,
                              const OutboxView* outboxes)
      : shape_(shape), step_(step), chunk_(chunk), outboxes_(outboxes), own_(outboxes[shape.me]) {}

  EVENKEEL_HOST_DEVICE int positions() const { return own_.in_position[shape_.num_ranks]; }
  EVENKEEL_HOST_DEVICE int rows() const { return own_.in_row[shape_.num_ranks]; }

  template <class Team>
  EVENKEEL_HOST_DEVICE void number_rows(const Team& team) const {
    team.for_each(shape_.num_ranks, [&](int s) { own_.in_row[s] = outboxes_[s].rows[shape_.me]; });
    const std::int32_t all = exclusive_scan(team, own_.in_row, shape_.num_ranks);
    team.for_each(1, [&](int) { own_.in_row[shape_.num_ranks] = all; });
  }

  // Fills the tables for the i-th message entry received, counted in order of source rank.
  EVENKEEL_HOST_DEVICE void fill(int i) const {
    const int source = last_at_most(own_.in_position, shape_.num_ranks, i);
    const std::int32_t entry = i - own_.in_position[source];
    const std::int32_t* const before = chunk_.arrived + source * shape_.num_experts;
    const int expert = last_at_most(before, shape_.num_experts, entry);
    std::int32_t position = chunk_.group_begin[step_.group_of[expert]] + entry - before[expert];
    for (int s = 0; s < source; ++s) position += arrivals(s, expert);
    const OutboxView& from = outboxes_[source];
    chunk_.input_row[position] = own_.in_row[source] + from.row[from.begin[shape_.me] + entry];
    chunk_.output_row[position] = i;
  }

  // Where a row here comes from: a rank, and the token on that rank.
  struct Origin {
    int rank;
    std::int32_t token;
  };
  EVENKEEL_HOST_DEVICE Origin origin(int row) const {
    const int source = last_at_most(own_.in_row, shape_.num_ranks, row);
    const OutboxView& from = outboxes_[source];
    return {source, from.token[from.begin[shape_.me] + row - own_.in_row[source]]};
  }

  // The source rank of the i-th result here, and the index of its assignment in that rank's step.
  EVENKEEL_HOST_DEVICE Origin assignment(int i) const {
    const int source = last_at_most(own_.in_position, shape_.num_ranks, i);
    const OutboxView& from = outboxes_[source];
    return {source, from.assignment[from.begin[shape_.me] + i - own_.in_position[source]]};
  }

 private:
  EVENKEEL_HOST_DEVICE std::int32_t arrivals(int source, int expert) const {
    const std::int32_t* const before = chunk_.arrived + source * shape_.num_experts;
    const std::int32_t end = expert + 1 < shape_.num_experts
                                 ? before[expert + 1]
                                 : own_.in_position[source + 1] - own_.in_position[source];
    return end - before[expert];
  }

  const RouteShape& shape_;
  const StepView& step_;
  const ChunkView& chunk_;
  const OutboxView* outboxes_;
  const OutboxView& own_;
};

}  // namespace evenkeel::cuda
