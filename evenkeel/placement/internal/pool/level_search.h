// Puts copies of experts on the ranks of one pool, level in every recording.
//
// Problem     fill the slots of every rank so that the heaviest rank of the worst recording is as light as
//             possible. An expert's load is split evenly over its copies; a rank holds an expert once.
// Method      largest first, each onto the rank whose sum of squared loads over the recordings grows least.
//             If some copies find no rank without their expert, start again: experts with most copies first,
//             onto the emptiest ranks. Then swap the two copies that lower the potential most, again and
//             again. The potential sums, over ranks and recordings, the fourth power of the load above the
//             pool's mean. The heaviest rank is relieved first; if no swap helps it, the next heaviest are
//             tried.
// Cost        a swap looks at slots x (slots of a rank) pairs; for four recordings a pair takes some
//             nanoseconds.
// Guarantee   every swap lowers the potential; the result depends on the input alone.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "evenkeel/placement/internal/deadline.h"

namespace evenkeel::internal {

// Loads in several recordings side by side, four to a block, for SIMD: each operation acts on all four.
struct Lanes {
  static constexpr std::size_t kWidth = 4;
  // A vector type of GCC and clang; without vector registers the compiler computes the four one by one.
  using Vector = float __attribute__((vector_size(kWidth * sizeof(float))));

  Vector of = {};

  // How many blocks hold this many recordings. Lanes beyond the last recording are 0.
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

struct LevelPool {
  std::span<const Lanes> loads;              // [E, blocks]; 1 is the mean load of a rank in that recording
  std::size_t blocks = 1;                    // blocks of one expert
  std::span<const std::int32_t> capacities;  // [P] slots of each rank; all are filled
};

struct LevelAnswer {
  float heaviest = 0;                   // load of the heaviest rank in the worst recording
  std::vector<std::int32_t> expert_in;  // rank after rank; empty if copies could not be put on distinct ranks
};

// All functions below swap copies until no rank is above `target`, no swap helps, or the deadline passes.

// Copies go to the expert with the largest share in any recording, as for one recording. With few slots, the
// function then tries to move one copy from every expert to every other, as long as that helps.
LevelAnswer level_pool(const LevelPool& pool, float target, const Deadline& deadline);
// With a given number of copies of each expert: as many in all as there are slots, at most one on each rank.
LevelAnswer level_copies(const LevelPool& pool, std::span<const std::int32_t> copies, float target,
                         const Deadline& deadline);
// Starts from the given expert in each slot, rank after rank; none may be twice on a rank.
LevelAnswer level_from(const LevelPool& pool, std::span<const std::int32_t> expert_in, float target,
                       const Deadline& deadline);

}  // namespace evenkeel::internal
