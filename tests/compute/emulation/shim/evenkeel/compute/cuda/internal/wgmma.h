// Replaces the header of the same name: the kernel's matrix product on an emulated block.
#pragma once

#include "evenkeel/compute/cuda/internal/operand.h"
#include "tests/compute/emulation/block.h"
#include "tests/compute/emulation/shared_memory.h"

namespace evenkeel::cuda {

struct BlockNumbers {
  float number(std::uint32_t address) const {
    bf16 value;
    std::memcpy(&value, evenkeel::testing::EmulatedBlock::current().at(address), sizeof value);
    return static_cast<float>(value);
  }
};

template <Major kMajorA, Major kMajorB, int kColumns>
void wgmma(float (&d)[128], std::uint64_t a, std::uint64_t b, int add) {
  const unsigned thread = threadIdx.x % 128;
  evenkeel::testing::EmulatedBlock::current().thread().products.push_back([&d, a, b, add, thread] {
    const BlockNumbers memory;
    const evenkeel::testing::WgmmaOperand of_a(memory, a, kMajorA == Major::outer);
    const evenkeel::testing::WgmmaOperand of_b(memory, b, kMajorB == Major::outer);
    float rows[2][16];
    for (std::uint32_t half = 0; half < 2; ++half)
      for (std::uint32_t k = 0; k < 16; ++k)
        rows[half][k] = of_a.at(thread / 32 * 16 + thread % 32 / 4 + 8 * half, k);
    for (std::uint32_t column = 0; column < kColumns / 4; ++column) {
      // A thread has two columns of each block of 8.
      const std::uint32_t n = column / 2 * 8 + thread % 4 * 2 + column % 2;
      float weights[16];
      for (std::uint32_t k = 0; k < 16; ++k) weights[k] = of_b.at(n, k);
      for (std::uint32_t half = 0; half < 2; ++half) {
        float& sum = d[column / 2 * 4 + half * 2 + column % 2];
        double terms = 0;
        for (std::uint32_t k = 0; k < 16; ++k)
          terms += static_cast<double>(rows[half][k]) * static_cast<double>(weights[k]);
        sum = static_cast<float>(terms + (add ? static_cast<double>(sum) : 0.0));
      }
    }
  });
}

inline void wgmma_begin() {}
inline void wgmma_commit() {
  auto& thread = evenkeel::testing::EmulatedBlock::current().thread();
  thread.groups.push_back(std::exchange(thread.products, {}));
}
template <int kPending>
void wgmma_wait() {
  for (auto& groups = evenkeel::testing::EmulatedBlock::current().thread().groups; groups.size() > kPending;
       groups.pop_front())
    for (const auto& product : groups.front()) product();
}
inline void keep_in_place(float (&)[128]) {}

}  // namespace evenkeel::cuda
