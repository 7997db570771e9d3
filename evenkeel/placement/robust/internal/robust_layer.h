// One layer of replicate_robustly(): who gets copies, groups to nodes, copies to ranks, and how far anybody
// could go.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "evenkeel/placement/internal/pool/copy_counts.h"
#include "evenkeel/placement/internal/pool/level_pool.h"
#include "evenkeel/placement/internal/pool/slot_bound.h"
#include "evenkeel/placement/replicas/replicas.h"

namespace evenkeel::internal {

class RobustLayer {
 public:
  // Sizes alone are read. `capacities` [P] are the slots of each rank.
  RobustLayer(const ReplicaProblem& sizes, std::span<const std::int32_t> capacities,
              const Deadline& deadline);

  // The loads of this layer in each recording, [W, E]; a recording without load counts for nothing.
  void read(std::span<const double> loads);
  // Searches from nothing, and from `of_sum` where that is better; `of_sum` becomes what was found.
  void solve(std::span<std::int32_t> of_sum);
  // Of the recordings that were read: nobody goes below, groups left aside.
  double bound();
  // Of each recording, [W].
  std::vector<double> max_over_mean(std::span<const std::int32_t> expert_in) const;

 private:
  struct Node {
    std::size_t first_rank = 0;
    std::size_t num_ranks = 0;
    std::size_t first_slot = 0;
    std::size_t num_slots = 0;
  };

  void lay_out_nodes(const ReplicaProblem& sizes);
  bool search_alone();
  bool group_nodes();
  bool search_node(const Node& node, std::span<const std::int32_t> experts);
  void take_lanes(std::span<const std::int32_t> experts);
  float heaviest_load(std::span<const std::int32_t> expert_in) const;
  void search_from(std::span<std::int32_t> expert_in);

  std::size_t num_experts_;
  std::size_t num_groups_;
  std::span<const std::int32_t> capacities_;
  const Deadline& deadline_;
  std::vector<Node> nodes_;

  std::vector<double> shares_;  // [W, E], 1 is the mean of a rank
  std::vector<double> peaks_;   // [E] the largest of the recordings
  std::size_t blocks_ = 1;
  std::vector<Lanes> lanes_;                           // [E, blocks]
  std::vector<std::vector<std::int32_t>> experts_of_;  // [nodes]
  std::vector<std::int32_t> found_;                    // [slots]
  float heaviest_ = 0;                                 // of what was found
  std::vector<Lanes> local_;
  std::vector<FixedLoad> fixed_;
  CopyCounts counts_;
  LevelPool pool_;
  LevelSearch search_;
  SlotBound slot_bound_;
};

}  // namespace evenkeel::internal
