// Places for borrowed weights: which expert lies where when, where fewer fit than a step borrows.
//
// Problem    A rank computes, chunk by chunk, with foreign experts whose weights it borrows. It has `places`
//            for them. An expert that is needed again and has lost its place is sent again.
// Method     The step's uses are known beforehand, in their order. A use whose expert lies nowhere takes an
//            empty place, or that of the expert whose next use is farthest off (Belady, 1966).
// Cost       O(uses x (uses + places)), no allocation: the caller gives the room. One thread; host or device.
// Guarantee  No order of giving up places has fewer sendings for the same order of uses. Every rank that
//            knows the uses knows the sendings, so nothing need be agreed.
#pragma once

#include <cstdint>

#include "evenkeel/base/host_device.h"

namespace evenkeel {

// How many experts' weights a rank can borrow at a time: as many as a rank is home to, or what the bytes
// allow, whichever is less; at least 1.
EVENKEEL_HOST_DEVICE constexpr int ring_places(int num_experts, int num_ranks, std::int64_t bytes,
                                               std::int64_t bytes_per_expert) {
  const std::int64_t native = (num_experts + num_ranks - 1) / num_ranks;
  const std::int64_t fit = bytes_per_expert > 0 ? bytes / bytes_per_expert : native;
  const std::int64_t places = fit < native ? fit : native;
  return places < 1 ? 1 : static_cast<int>(places);
}

// What happens before use i, and where its expert lies.
struct RingUse {
  std::int32_t place = 0;
  // Whether its weights are sent for this use; they may be from when use `free_after` is done (-1: at once).
  bool sent = false;
  std::int32_t free_after = -1;
};

struct RingCounts {
  std::int32_t sent = 0;
  std::int32_t sent_again = 0;  // of these, experts that had been there before
};

// What a place holds; the room that schedule_ring() works in, one for each place.
struct RingPlace {
  std::int32_t expert = -1;
  std::int32_t last_use = -1;
  std::int32_t next_use = 0;
};

// `expert[i]` is what use i computes with; `next[i]` and `result[i]` are written.
EVENKEEL_HOST_DEVICE inline RingCounts schedule_ring(const std::int32_t* expert, int uses, int places,
                                                     RingPlace* place, std::int32_t* next, RingUse* result) {
  RingCounts counts;
  for (int i = uses - 1; i >= 0; --i) {
    next[i] = uses;
    for (int later = i + 1; later < uses; ++later) {
      if (expert[later] != expert[i]) continue;
      next[i] = later;
      break;
    }
  }
  for (int p = 0; p < places; ++p) place[p] = RingPlace();
  for (int i = 0; i < uses; ++i) {
    int chosen = -1;
    int farthest = 0;
    for (int p = 0; p < places && chosen < 0; ++p) {
      if (place[p].expert == expert[i]) chosen = p;
      const bool is_empty = place[p].expert < 0;
      const bool was_empty = place[farthest].expert < 0;
      if (!was_empty && (is_empty || place[p].next_use > place[farthest].next_use)) farthest = p;
    }
    const bool sent = chosen < 0;
    if (sent) chosen = farthest;
    result[i] = {chosen, sent, sent ? place[chosen].last_use : -1};
    bool was_there = false;
    for (int before = 0; sent && before < i && !was_there; ++before) was_there = expert[before] == expert[i];
    counts.sent += sent ? 1 : 0;
    counts.sent_again += was_there ? 1 : 0;
    place[chosen] = {expert[i], i, next[i]};
  }
  return counts;
}

}  // namespace evenkeel
