// Free sizes with equal totals (Eq. 13) at the least cost, for few experts and ranks.
//
// Problem     Clusters of each layer of any sizes, so that sizes add up to the same on every rank (one apart
//             where they cannot), and Eq. 1 over all layers is least. All capacities alike.
// Method      For each layer, the least cost for each way to cut E experts into P sizes, as far as it can
//             still beat the best known answer. Then a dynamic program over layers whose state is the totals
//             so far, ascending, as ranks are interchangeable.
// Cost        Bounded: at most kMostStates states, and the steps given for each search of a layer.
// Guarantee   Where it finishes, nothing better exists.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "evenkeel/placement/internal/partition.h"

namespace evenkeel::internal {

class SizeProgram {
 public:
  static constexpr int kMostClusters = 4;
  static constexpr std::size_t kMostStates = 50'000;

  // `least` bounds the deviation of each layer; the totals are those of a SizeRule.
  SizeProgram(const std::vector<PartitionTask>& tasks, std::vector<int> total, std::vector<Wide> least,
              std::int64_t search_steps, const Deadline& deadline);

  // Looks for clusters, numbered so that totals hold, that deviate less than `known` in all layers together.
  bool improve(Wide known, std::vector<Clusters>& layers);
  // Nothing better than what is now known exists.
  bool finished() const { return finished_; }

 private:
  using Sizes = std::vector<int>;
  struct Cut {    // the best clusters of a layer for some sizes
    Sizes sizes;  // ascending
    Clusters clusters;
    Wide deviation;
  };
  struct State {
    Sizes totals = {};  // by rank
    Wide deviation = 0;
    std::size_t parent = 0;
    std::size_t cut = 0;
    Sizes sizes = {};  // of this layer, by rank
  };
  using States = std::vector<State>;

  void list_cuts(std::size_t layer, Wide slack);
  void add_cut(std::size_t layer, const Sizes& sizes, Wide slack);
  bool step(std::size_t layer, Wide known);
  void extend(std::size_t parent, std::size_t layer, std::size_t cut,
              std::map<Sizes, std::size_t>& known_totals);
  bool may_end_even(const Sizes& totals, std::size_t layers_left) const;
  void write(std::size_t last, std::vector<Clusters>& layers) const;

  const std::vector<PartitionTask>& tasks_;
  Sizes total_;
  std::vector<Wide> least_;  // [L]
  std::int64_t search_steps_;
  const Deadline& deadline_;
  bool finished_ = true;
  std::vector<std::vector<Cut>> cuts_;  // [L]
  std::vector<States> states_;          // [L + 1]
};

}  // namespace evenkeel::internal
