// Copies of experts on the ranks of one pool, level in every recording.
//
// Problem     fill the slots of every rank so that the heaviest rank of the worst recording is lightest. The
//             load of an expert is split evenly over its copies; a rank holds an expert once.
// Method      largest first, each onto the rank whose sum of squared loads over the recordings grows least.
//             Where copies find no rank without their expert so, those of most copies go first, onto the
//             emptiest ranks. Then exchanges of two copies that lower the potential most: over ranks and
//             recordings, the fourth power of what is above the pool's mean. The heaviest rank is relieved
//             first; where nothing helps it, the next heaviest are tried.
// Cost        an exchange looks at slots x (slots of a rank) pairs, some nanoseconds each for four.
// Guarantee   every exchange lowers the potential; the result depends on the input alone.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "evenkeel/placement/internal/deadline.h"

namespace evenkeel::internal {

// Loads in several recordings side by side, four to a block: what is done for one of them is done for all.
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

struct LevelPool {
  std::span<const Lanes> loads;              // [E, blocks], 1 is the mean of a rank in that recording
  std::size_t blocks = 1;                    // of an expert
  std::span<const std::int32_t> capacities;  // [P] slots; together the slots that are filled
};

struct LevelAnswer {
  float heaviest = 0;                   // load of the heaviest rank in the worst recording
  std::vector<std::int32_t> expert_in;  // rank after rank; empty: copies of an expert found no distinct ranks
};

// All of them exchange until no rank is above `target`, none helps or the deadline passes.

// Copies go to whichever expert has the largest share of any recording, as for one recording. Where slots are
// few, then one copy from every expert to every other, as long as that helps.
LevelAnswer level_pool(const LevelPool& pool, float target, const Deadline& deadline);
// Copies of each expert, as many as there are slots, at most one for each rank.
LevelAnswer level_copies(const LevelPool& pool, std::span<const std::int32_t> copies, float target,
                         const Deadline& deadline);
// From experts rank after rank, none twice on a rank.
LevelAnswer level_from(const LevelPool& pool, std::span<const std::int32_t> expert_in, float target,
                       const Deadline& deadline);

}  // namespace evenkeel::internal
