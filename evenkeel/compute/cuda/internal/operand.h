// The descriptor of an operand in shared memory, for wgmma.
#pragma once

#include <cstdint>

#include "evenkeel/compute/cuda/internal/boxes.h"

namespace evenkeel::cuda {

// Three fields are in multiples of 16 bytes: bits 0-13 are the start address, 16-29 the stride between boxes
// of 64 outer indices (Major::outer), 32-45 the stride between groups of eight rows of a box. Bits 62-63 are
// 1 for the swizzle of boxes.h.
struct OperandDescriptor {
  static constexpr std::uint64_t kSwizzle = std::uint64_t{1} << 62;
  static constexpr std::uint64_t kEightRows = std::uint64_t{8 * kRowBytes / kLineBytes} << 32;
  static constexpr std::uint64_t kNextBox = std::uint64_t{kBoxBytes / kLineBytes} << 16;

  // `address` is in shared memory.
  EVENKEEL_HOST_DEVICE static constexpr std::uint64_t at(std::uint32_t address) {
    return kSwizzle | kEightRows | kNextBox | ((address & 0x3ffffu) / kLineBytes);
  }
};

inline constexpr int kInstructionDepth = 16;  // of K

// Bytes between the 16-deep K slices of consecutive instructions in an operand's tile: along a row, or 16
// rows down.
EVENKEEL_HOST_DEVICE constexpr std::uint32_t depth_step(Major major) {
  return major == Major::k ? kInstructionDepth * 2 : kInstructionDepth * kRowBytes;
}

}  // namespace evenkeel::cuda
