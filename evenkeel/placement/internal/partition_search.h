// The best partition of a layer of few experts, by trying all that can be best.
//
// Problem     PartitionTask of at most 16 experts.
// Method      The clusters are halved: every subset of the experts that can be the load of one half, judged
//             by how far the halves are from their means (the clusters inside deviate at least as much
//             together), then each half the same way, down to single clusters. An odd number of clusters
//             splits off the one that holds the first expert.
// Cost        At most the steps given; a step looks at one subset. 16 experts, 4 clusters: a million or
//             fewer.
// Guarantee   Where it finishes, nothing better exists.
// Source      The idea of halving with bounds is that of sequential number partitioning.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "evenkeel/placement/internal/partition.h"

namespace evenkeel::internal {

class PartitionSearch {
 public:
  static constexpr int kMostExperts = 16;

  PartitionSearch(const PartitionTask& task, std::int64_t steps);

  // Looks for a partition with a deviation below `known`; writes the best of them to `clusters` if there is
  // one.
  bool improve(Wide known, Clusters& clusters);
  // Every partition that could be better has been looked at.
  bool finished() const { return steps_left_ >= 0; }

 private:
  using Experts = std::uint32_t;  // a set
  struct Size {
    int least;
    int most;
    friend auto operator<=>(const Size&, const Size&) = default;
  };
  using Sizes = std::vector<Size>;  // ascending
  struct Part {
    Experts experts;
    Size size;
  };
  using Parts = std::vector<Part>;
  struct Choice {  // of the sizes that go into one half
    Sizes in;
    Sizes out;
  };

  // The least deviation of `experts` in clusters of `sizes` if it is below `limit`, else `limit`.
  Wide split(Experts experts, const Sizes& sizes, Wide limit, Parts& parts);
  Wide halve(Experts experts, const Choice& choice, Wide limit, Parts& parts);
  Wide distance(Experts experts, std::size_t num_clusters) const;
  static bool fits(Experts experts, const Sizes& sizes);
  static std::vector<Choice> choices(const Sizes& sizes, std::size_t count);
  void write(const Parts& parts, Clusters& clusters) const;

  const PartitionTask& task_;
  std::vector<std::int64_t> load_of_;  // [2^E]
  std::int64_t total_ = 0;
  std::int64_t steps_left_;
};

}  // namespace evenkeel::internal
