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

#include <cstdint>
#include <span>
#include <vector>

#include "evenkeel/placement/internal/deadline.h"
#include "evenkeel/placement/internal/pool/lanes.h"

namespace evenkeel::internal {

class LevelSearch {
 public:
  struct Pool {
    std::span<const Lanes> loads;              // [E, blocks], 1 is the mean of a rank in that recording
    std::size_t blocks = 1;                    // of an expert
    std::span<const std::int32_t> capacities;  // [P] slots; together the slots that are filled
  };

  // copies[e] of each expert, as many as there are slots, at most one for each rank. False where copies of an
  // expert find no rank that has none of it; nothing is placed then.
  bool fill(const Pool& pool, std::span<const std::int32_t> copies);
  // Experts rank after rank, none twice on a rank.
  void start_at(const Pool& pool, std::span<const std::int32_t> expert_in);
  // Exchanges until no rank is above `target`, none helps or the deadline passes.
  void level(float target, const Deadline& deadline);

  // Of the heaviest rank in the worst recording.
  float heaviest_load() const;
  std::span<const std::int32_t> expert_in() const { return expert_in_; }

 private:
  struct Exchange {
    std::size_t mine = 0;
    std::size_t theirs = 0;
    float change = 0;  // of the potential
  };

  void size_for(const Pool& pool);
  void split_loads(std::span<const std::int32_t> copies);
  void put(std::size_t slot, std::int32_t expert, std::size_t rank);
  float growth(std::size_t rank, std::int32_t expert) const;
  std::vector<std::int32_t> items_by_size(std::span<const std::int32_t> copies) const;
  bool place_items(std::span<const std::int32_t> items, bool emptiest_first);

  bool holds(std::size_t rank, std::int32_t expert) const {
    return held_[rank * num_experts_ + static_cast<std::size_t>(expert)] != 0;
  }
  std::span<const Lanes> share(std::int32_t expert) const {
    return std::span(shares_).subspan(static_cast<std::size_t>(expert) * blocks_, blocks_);
  }
  Lanes above(Lanes load, std::size_t block) const;
  void measure(std::size_t rank);
  std::size_t heaviest_lane(std::size_t rank) const;
  bool relieve(std::size_t rank);
  void consider(std::size_t rank, std::size_t other, Exchange& best) const;
  void exchange(const Exchange& chosen, std::size_t rank, std::size_t other);
  void order_ranks();

  std::size_t num_experts_ = 0;
  std::size_t blocks_ = 1;
  std::span<const Lanes> loads_;
  std::vector<Lanes> mean_;              // [blocks] of the pool's ranks
  std::vector<std::size_t> begin_;       // [P + 1] into the slots
  std::vector<std::size_t> rank_of_;     // [slots]
  std::vector<std::int32_t> expert_in_;  // [slots]
  std::vector<std::uint8_t> held_;       // [P, E]
  std::vector<Lanes> shares_;            // [E, blocks] of one copy
  std::vector<Lanes> rank_load_;         // [P, blocks]
  std::vector<float> potential_;         // [P]
  std::vector<float> worst_;             // [P] load in the worst recording
  std::vector<std::size_t> by_potential_;
};

}  // namespace evenkeel::internal
