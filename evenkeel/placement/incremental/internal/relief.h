// Steps that relieve the heaviest rank of one layer, the one that gains most for each move first.
//
// A step counts for what it leaves of the ranks it touches: in no recording may one of them be as heavy as
// the heaviest was.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

#include "evenkeel/placement/incremental/internal/layer_homes.h"

namespace evenkeel {

// Homes given and taken away, up to two of each.
struct ReliefStep {
  struct Home {
    std::size_t rank = 0;
    std::size_t expert = 0;
  };
  std::vector<Home> removed;
  std::vector<Home> added;

  void apply(LayerHomes& homes) const;  // adds first, so that no expert is ever without a home
};

class Relief {
 public:
  // node_of_rank [P]; free_slots [P], kept up to date by apply().
  Relief(LayerHomes& homes, std::span<const std::int32_t> node_of_rank,
         std::span<const std::int32_t> free_slots);

  // Takes the best step that costs at most `most_moves` more. False: there is none.
  bool step(int most_moves);
  const ReliefStep& last() const { return best_; }

 private:
  using Home = ReliefStep::Home;

  void consider_exchanges(std::size_t rank);
  void consider_giving_up(std::size_t rank);
  void consider_copying_away(std::size_t rank);
  void consider_free_slots(std::size_t rank);
  void consider(std::initializer_list<Home> removed, std::initializer_list<Home> added);
  bool may_go(std::size_t expert, std::size_t rank) const;
  int cost(std::initializer_list<Home> removed, std::initializer_list<Home> added) const;
  void touch(std::size_t rank, std::size_t expert, int more_homes, int parts_after, int parts_before);

  LayerHomes& homes_;
  std::span<const std::int32_t> node_of_rank_;
  std::vector<std::int32_t> free_slots_;
  std::vector<double> change_;        // [W, P]
  std::vector<std::size_t> touched_;  // ranks with a change
  std::vector<std::uint8_t> is_touched_;
  double heaviest_ = 0;
  std::size_t recording_ = 0;  // in which it is
  int most_moves_ = 0;
  double best_merit_ = 0;
  ReliefStep best_;
};

}  // namespace evenkeel
