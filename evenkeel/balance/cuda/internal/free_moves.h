// Free moves (balance/internal/free_moves.h): work moves between the copies of an expert. A single lane makes
// the breadth-first searches, in the host's order: only placements with redundant experts need them.
#pragma once

#include <cstdint>

#include "evenkeel/balance/cuda/internal/planner_buffers.h"

namespace evenkeel::cuda {

class FreeMoves {
 public:
  // `queue` has 3 P entries. level() changes the slots' shares and, with them, the loads of ranks.
  EVENKEEL_HOST_DEVICE FreeMoves(const Homes& homes, Array share, Array load, Array queue,
                                 std::int32_t target)
      : homes_(homes), share_(share), load_(load), queue_(queue), target_(target) {}

  EVENKEEL_HOST_DEVICE void level() {
    for (int rank = 0; rank < homes_.num_ranks; ++rank)
      while (load_[rank] > target_ && find_path(rank)) push(rank);
  }

 private:
  EVENKEEL_HOST_DEVICE std::int32_t& from(int rank) const { return queue_[homes_.num_ranks + rank]; }
  EVENKEEL_HOST_DEVICE std::int32_t& to(int rank) const { return queue_[2 * homes_.num_ranks + rank]; }

  // from(r) is the slot from which rank r was reached, -1 where it was not.
  EVENKEEL_HOST_DEVICE bool find_path(int start) {
    for (int r = 0; r < homes_.num_ranks; ++r) from(r) = -1;
    queue_[0] = start;
    last_ = 1;
    for (int i = 0; i < last_; ++i)
      for (int s = homes_.slot_begin[queue_[i]]; s < homes_.slot_begin[queue_[i] + 1]; ++s)
        if (share_[s] != 0 && reach_copies(start, s)) return true;
    return false;
  }

  EVENKEEL_HOST_DEVICE bool reach_copies(int start, int slot) {
    const int expert = homes_.slot_expert[slot];
    for (int i = homes_.copies_begin[expert]; i < homes_.copies_begin[expert + 1]; ++i) {
      const int copy = homes_.copies[i];
      const int rank = homes_.slot_rank[copy];
      if (rank == start || from(rank) >= 0) continue;
      from(rank) = slot;
      to(rank) = copy;
      queue_[last_++] = rank;
      if (load_[rank] < target_) return true;
    }
    return false;
  }

  EVENKEEL_HOST_DEVICE void push(int start) {
    const int last = queue_[last_ - 1];
    std::int32_t amount = load_[start] - target_;
    if (target_ - load_[last] < amount) amount = target_ - load_[last];
    for (int at = last; at != start; at = homes_.slot_rank[from(at)])
      if (share_[from(at)] < amount) amount = share_[from(at)];
    for (int at = last; at != start; at = homes_.slot_rank[from(at)]) {
      share_[from(at)] -= amount;
      share_[to(at)] += amount;
    }
    load_[start] -= amount;
    load_[last] += amount;
  }

  const Homes& homes_;
  Array share_;
  Array load_;
  Array queue_;
  std::int32_t target_;
  int last_ = 0;
};

}  // namespace evenkeel::cuda
