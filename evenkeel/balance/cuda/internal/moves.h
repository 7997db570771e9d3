// The moves of a planner, in the order in which it made them: so much of a slot's share to another
// rank.
#pragma once

#include <cstdint>

#include "evenkeel/balance/cuda/internal/lanes.h"
#include "evenkeel/balance/cuda/internal/memory.h"
#include "evenkeel/device/cuda/check.h"
#include "evenkeel/plan/cuda/step_view.h"

namespace evenkeel::cuda {

// The arrays have `capacity` places and are shared by all lanes; the object is each lane's own, and the same.
struct MoveList {
  Array slot;
  Array to;
  Array amount;
  int capacity = 0;
  int count = 0;

  // One lane does what else there is to do, in the same turn.
  template <class Lanes, class Besides>
  EVENKEEL_HOST_DEVICE void add(const Lanes& lanes, int from, int rank, std::int32_t size,
                                const Besides& besides) {
    EVENKEEL_DEVICE_CHECK(count < capacity);
    lanes.once([&] {
      set(count, from, rank, size);
      besides();
    });
    ++count;
  }

  // On one lane.
  EVENKEEL_HOST_DEVICE void set(int at, int from, int rank, std::int32_t size) const {
    slot[at] = from;
    to[at] = rank;
    amount[at] = size;
  }

  // The others keep their order. Rare: what was moved went back.
  template <class Lanes>
  EVENKEEL_HOST_DEVICE void erase(const Lanes& lanes, int at) {
    lanes.once([&] {
      for (int i = at; i + 1 < count; ++i) {
        slot[i] = slot[i + 1];
        to[i] = to[i + 1];
        amount[i] = amount[i + 1];
      }
    });
    --count;
  }

  template <class Lanes>
  EVENKEEL_HOST_DEVICE void assign(const Lanes& lanes, const MoveList& other) {
    count = other.count;
    lanes.for_each(count, [&](int i) {
      slot[i] = other.slot[i];
      to[i] = other.to[i];
      amount[i] = other.amount[i];
    });
  }
};

}  // namespace evenkeel::cuda
