// The memory that a planner works in: arrays of integers in one piece, on a device the dynamic shared
// memory of its block.
//
// Method  An array is a place in the piece and not a pointer, so that on a device each access is seen to be
//         one of shared memory: half the latency of one through a pointer, and less arithmetic.
#pragma once

#include <cstdint>

#include "evenkeel/base/host_device.h"

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

}  // namespace evenkeel::cuda
