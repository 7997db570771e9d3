// Loads in several recordings side by side, four to a block: what is done for one of them is done for all.
#pragma once

#include <algorithm>
#include <cstddef>

namespace evenkeel::internal {

struct Lanes {
  static constexpr std::size_t kWidth = 4;
  // GCC's and clang's; a machine without such registers takes the four one by one.
  using Vector = float __attribute__((vector_size(kWidth * sizeof(float))));

  Vector of = {};

  // Blocks that hold this many recordings; those beyond are 0.
  static constexpr std::size_t blocks_for(std::size_t recordings) {
    return (recordings + kWidth - 1) / kWidth;
  }
  static Lanes all(float value) { return {Vector{} + value}; }

  friend Lanes operator+(Lanes a, Lanes b) { return {a.of + b.of}; }
  friend Lanes operator-(Lanes a, Lanes b) { return {a.of - b.of}; }
  friend Lanes operator*(Lanes a, Lanes b) { return {a.of * b.of}; }
  friend Lanes positive(Lanes a) { return {a.of > Vector{} ? a.of : Vector{}}; }

  float sum() const { return (of[0] + of[1]) + (of[2] + of[3]); }
  float largest() const { return std::max(std::max(of[0], of[1]), std::max(of[2], of[3])); }
};

}  // namespace evenkeel::internal
