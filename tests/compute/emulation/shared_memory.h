// A multiprocessor's memory and instructions as the PTX manual describes them, to test kernels' indices
// without a GPU. The kernels share no code with this file.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

#include "evenkeel/base/data_type.h"

namespace evenkeel::testing {

// Filled with NaN, so that reading more than was copied shows in the results.
class SharedMemory {
 public:
  explicit SharedMemory(std::size_t bytes) : bytes_(bytes, std::byte{0xff}) {}

  void poison(std::size_t begin, std::size_t count) { std::memset(bytes_.data() + begin, 0xff, count); }
  // cp.async of a 16-byte line; all but its first `numbers` elements become zero.
  void copy_line(std::uint32_t to, const bf16* from, int numbers) {
    std::memset(bytes_.data() + to, 0, 16);
    if (numbers > 0) std::memcpy(bytes_.data() + to, from, static_cast<std::size_t>(numbers) * 2);
  }
  float number(std::uint32_t address) const {
    bf16 value;
    std::memcpy(&value, bytes_.data() + address, 2);
    return static_cast<float>(value);
  }
  void set(std::uint32_t address, bf16 value) { std::memcpy(bytes_.data() + address, &value, 2); }

 private:
  std::vector<std::byte> bytes_;
};

// The 128-byte swizzle of bulk copies and wgmma: address bits 4-6 are xored with bits 7-9.
inline std::uint32_t swizzled(std::uint32_t address) {
  return address ^ (address >> 3 & 0x70u);
}

// cp.async.bulk.tensor.2d with a box of 64 x 64 numbers of bf16.
inline void bulk_copy_box(SharedMemory& memory, std::uint32_t to, const bf16* matrix, std::int64_t rows,
                          std::int64_t columns, std::int64_t row, std::int64_t column) {
  for (std::uint32_t r = 0; r < 64; ++r)
    for (std::uint32_t c = 0; c < 64; ++c) {
      const bool inside = row + r < rows && column + c < columns;
      memory.set(swizzled(to + r * 128 + c * 2), inside ? matrix[(row + r) * columns + column + c] : bf16());
    }
}

// A wgmma operand in shared memory, read through its descriptor. Memory has number(address).
template <class Memory>
class WgmmaOperand {
 public:
  WgmmaOperand(const Memory& memory, std::uint64_t descriptor, bool transposed)
      : memory_(memory),
        begin_(static_cast<std::uint32_t>(descriptor & 0x3fff) * 16),
        leading_(static_cast<std::uint32_t>(descriptor >> 16 & 0x3fff) * 16),
        stride_(static_cast<std::uint32_t>(descriptor >> 32 & 0x3fff) * 16),
        layout_(static_cast<int>(descriptor >> 62)),
        transposed_(transposed) {}

  bool swizzles_128_bytes() const { return layout_ == 1; }

  // `outer` is the row of A or the column of B; `k` is 0..15.
  float at(std::uint32_t outer, std::uint32_t k) const {
    if (transposed_)
      return memory_.number(
          swizzled(begin_ + outer / 64 * leading_ + outer % 64 * 2 + k / 8 * stride_ + k % 8 * 128));
    return memory_.number(swizzled(begin_ + outer / 8 * stride_ + outer % 8 * 128 + k * 2));
  }

 private:
  const Memory& memory_;
  std::uint32_t begin_, leading_, stride_;
  int layout_;
  bool transposed_;
};

// The result of ldmatrix.x4: [lane][register][two numbers].
using Registers = std::array<std::array<std::array<float, 2>, 4>, 32>;
inline Registers ldmatrix(const SharedMemory& memory, const std::array<std::uint32_t, 32>& lines,
                          bool transposed) {
  Registers result;
  for (std::size_t lane = 0; lane < 32; ++lane)
    for (std::size_t matrix = 0; matrix < 4; ++matrix)
      for (std::size_t i = 0; i < 2; ++i) {
        const std::size_t near = lane / 4, far = 2 * (lane % 4) + i;
        const std::size_t row = transposed ? far : near, column = transposed ? near : far;
        result[lane][matrix][i] =
            memory.number(lines[8 * matrix + row] + static_cast<std::uint32_t>(column) * 2);
      }
  return result;
}

// mma.m16n8k16 over a warp: d[lane] += a . b, where b is in registers first_b and first_b + 1.
inline void mma(std::array<float*, 32> d, const Registers& a, const Registers& b, std::size_t first_b) {
  for (std::size_t row = 0; row < 16; ++row)
    for (std::size_t column = 0; column < 8; ++column) {
      double sum = 0;
      for (std::size_t k = 0; k < 16; ++k) {
        const float of_a = a[row % 8 * 4 + k % 8 / 2][row / 8 + k / 8 * 2][k % 2];
        const float of_b = b[column * 4 + k % 8 / 2][first_b + k / 8][k % 2];
        sum += static_cast<double>(of_a) * static_cast<double>(of_b);
      }
      float& number = d[row % 8 * 4 + column / 2][row / 8 * 2 + column % 2];
      number = static_cast<float>(static_cast<double>(number) + sum);
    }
}

}  // namespace evenkeel::testing
