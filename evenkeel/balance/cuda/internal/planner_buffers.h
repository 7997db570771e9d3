// The working memory of a planner: a few arrays of integers in one block of memory; on a device, the dynamic
// shared memory of the thread block.
//
// Method  An array is an offset into this memory and not a pointer, so that a device's compiler knows that
//         each access is to shared memory: half the latency of one through a pointer, and less arithmetic.
#pragma once

#include <cstdint>

#include "evenkeel/balance/cuda/internal/lanes.h"
#include "evenkeel/base/host_device.h"
#include "evenkeel/plan/cuda/step_view.h"

namespace evenkeel::cuda {

class Array {
 public:
  Array() = default;
  // `piece` is not read on a device.
  EVENKEEL_HOST_DEVICE Array(std::int32_t* piece, int first) : piece_(piece), first_(first) {}

  EVENKEEL_HOST_DEVICE std::int32_t& operator[](int i) const {
#if defined(__CUDA_ARCH__)
    extern __shared__ std::int32_t planner_memory[];
    return planner_memory[first_ + i];
#else
    return piece_[first_ + i];
#endif
  }

 private:
  std::int32_t* piece_ = nullptr;
  int first_ = 0;
};

// Hands out the arrays of a piece, one behind the other.
class ArrayCarver {
 public:
  EVENKEEL_HOST_DEVICE explicit ArrayCarver(std::int32_t* piece) : piece_(piece) {}
  EVENKEEL_HOST_DEVICE Array take(int count) {
    const Array array(piece_, taken_);
    taken_ += count;
    return array;
  }
  EVENKEEL_HOST_DEVICE int taken() const { return taken_; }

 private:
  std::int32_t* piece_;
  int taken_ = 0;
};

// The moves of a planner, in the order in which it made them: each sends part of a slot's share to another
// rank. The arrays have `capacity` entries and are shared by all lanes. Each lane has this object for itself,
// with the same values.
struct MoveList {
  Array slot;
  Array to;
  Array amount;
  int capacity = 0;
  int count = 0;

  // The lane that writes the move also runs besides(), between the same barriers.
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

  // Runs on one lane.
  EVENKEEL_HOST_DEVICE void set(int at, int from, int rank, std::int32_t size) const {
    slot[at] = from;
    to[at] = rank;
    amount[at] = size;
  }

  // Removes a move; the others keep their order. Rare: happens only if all that was moved goes back.
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

// A PlacementView in the planner's memory.
struct Homes {
  int num_experts;
  int num_ranks;
  int num_slots;
  Array all;           // all the arrays below, in this order
  Array slot_begin;    // [P + 1]
  Array slot_expert;   // [S]
  Array slot_rank;     // [S]
  Array slot_copy;     // [S]
  Array copies_begin;  // [E + 1]
  Array copies;        // [S]

  EVENKEEL_HOST_DEVICE int copies_of(int expert) const {
    return copies_begin[expert + 1] - copies_begin[expert];
  }
  EVENKEEL_HOST_DEVICE bool has_single_homes() const { return num_slots == num_experts; }
};

struct PlannerBuffers {
  Homes homes;
  Array base;            // [P]
  Array load;            // [E]
  Array order;           // [E], experts by decreasing load; later where segments begin
  Array share;           // [S], before any move
  Array least;           // [S], the fewest assignments that may leave the slot for a rank without a copy
  Array rest;            // [S], what stays on the slot
  Array kept;            // [S], what least-loaded leaves, while level's plan is in `rest`
  Array home_load;       // [P], base loads included
  Array committed;       // [P], loads so far; balances in level
  Array queue;           // [3 P], for searches over copies; marks of ranks
  MoveList moves;        // those being made
  MoveList best;         // those of level's best matching so far
  Array first_scratch;   // [most_moves]
  Array second_scratch;  // [most_moves]
  Array verdict;         // [4], results that the leading lanes pass to all

  // integers() is the size of the memory, in integers; in() makes the arrays in memory of that size.
  static EVENKEEL_HOST_DEVICE int integers(const PlacementView& sizes) {
    ArrayCarver carver(nullptr);
    carve(carver, sizes);
    return carver.taken();
  }
  static EVENKEEL_HOST_DEVICE PlannerBuffers in(std::int32_t* piece, const PlacementView& sizes) {
    ArrayCarver carver(piece);
    return carve(carver, sizes);
  }

 private:
  static EVENKEEL_HOST_DEVICE Homes carve_homes(ArrayCarver& carver, const PlacementView& sizes) {
    const int experts = sizes.num_experts, slots = sizes.num_slots, ranks = sizes.num_ranks;
    Homes homes{experts, ranks, slots, {}, {}, {}, {}, {}, {}, {}};
    homes.all = homes.slot_begin = carver.take(ranks + 1);
    homes.slot_expert = carver.take(slots);
    homes.slot_rank = carver.take(slots);
    homes.slot_copy = carver.take(slots);
    homes.copies_begin = carver.take(experts + 1);
    homes.copies = carver.take(slots);
    return homes;
  }
  static EVENKEEL_HOST_DEVICE PlannerBuffers carve(ArrayCarver& carver, const PlacementView& sizes) {
    const int experts = sizes.num_experts, slots = sizes.num_slots, ranks = sizes.num_ranks;
    const int most = most_moves(slots, ranks);
    const auto take_moves = [&] {
      MoveList moves;
      moves.slot = carver.take(most);
      moves.to = carver.take(most);
      moves.amount = carver.take(most);
      moves.capacity = most;
      return moves;
    };
    PlannerBuffers buffers{};
    buffers.homes = carve_homes(carver, sizes);
    buffers.load = carver.take(experts);
    buffers.order = carver.take(experts);
    buffers.share = carver.take(slots);
    buffers.least = carver.take(slots);
    buffers.rest = carver.take(slots);
    buffers.kept = carver.take(slots);
    buffers.base = carver.take(ranks);
    buffers.home_load = carver.take(ranks);
    buffers.committed = carver.take(ranks);
    buffers.queue = carver.take(3 * ranks);
    buffers.moves = take_moves();
    buffers.best = take_moves();
    buffers.first_scratch = carver.take(most);
    buffers.second_scratch = carver.take(most);
    buffers.verdict = carver.take(4);
    return buffers;
  }
};

// copy_share() of balance/internal/step_input.h for 32 bits.
EVENKEEL_HOST_DEVICE inline std::int32_t share_of_copy(std::int32_t load, std::int32_t copies,
                                                       std::int32_t copy) {
  if (copies == 1) return load;
  return load / copies + (copy < load % copies ? 1 : 0);
}

}  // namespace evenkeel::cuda
