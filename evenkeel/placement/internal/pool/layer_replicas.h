// One layer of replicate(): groups to nodes, copies and ranks within each node, and what comes out in the
// caller's loads. Its memory is that of the largest layer so far.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "evenkeel/placement/internal/pool/copy_order.h"
#include "evenkeel/placement/internal/pool/group_packing.h"
#include "evenkeel/placement/internal/pool/pool_solver.h"
#include "evenkeel/placement/replicas/replicas.h"

namespace evenkeel {

struct LayerQuality {
  double max_over_mean = 1;
  double bound = 1;
};

class LayerReplicas {
 public:
  // Sizes alone are read here. Throws Infeasible where groups cannot be packed to nodes.
  LayerReplicas(const ReplicaProblem& problem, const internal::Deadline& deadline);

  // The slots of each rank: floor((r + 1) S / P) - floor(r S / P).
  std::span<const std::int32_t> capacities() const { return capacities_; }

  LayerQuality solve(std::span<const double> loads, double total, std::span<std::int32_t> expert_in_slot);

 private:
  struct Node {
    std::size_t first_rank = 0;
    std::size_t num_ranks = 0;
    std::size_t first_slot = 0;
    std::size_t num_slots = 0;
  };

  struct Outcome {
    FixedLoad heaviest = 0;
    FixedLoad bound = 0;
  };

  void lay_out_nodes(const ReplicaProblem& problem);
  void ask_for_distinct_experts();
  FixedLoad solve_flat(std::span<std::int32_t> expert_in_slot);
  FixedLoad solve_groups(std::span<std::int32_t> expert_in_slot);
  // All nodes, the most loaded first, each only as far as it would be the heaviest.
  Outcome solve_nodes(std::span<const std::int32_t> node_of_group, std::span<std::int32_t> expert_in_slot);
  FixedLoad try_other_groupings(Outcome best, std::span<std::int32_t> expert_in_slot);
  FixedLoad solve_node(std::size_t node, std::span<const std::int32_t> node_of_group, FixedLoad target,
                       std::span<std::int32_t> expert_in_slot);
  // Thorough searches take the first answer of several that are equally good.
  void give_hotter_experts_more_copies(std::span<std::int32_t> expert_in_slot);
  FixedLoad heaviest_rank(std::span<const std::int32_t> expert_in_slot);
  double max_over_mean(std::span<const double> loads, double total,
                       std::span<const std::int32_t> expert_in_slot);

  std::size_t num_groups_;
  std::size_t group_size_;
  PoolSolver::Search search_;
  std::vector<std::int32_t> capacities_;
  std::vector<Node> nodes_;
  std::vector<GroupPacking::Node> group_nodes_;

  std::vector<FixedLoad> fixed_;        // [E]
  std::vector<FixedLoad> group_loads_;  // [groups]
  std::vector<std::size_t> by_load_;    // nodes
  std::vector<FixedLoad> node_load_;    // [nodes]
  std::vector<FixedLoad> local_;        // loads of a node's experts
  std::vector<std::int32_t> global_;    // and their ids
  std::vector<std::int32_t> other_;     // [S] another grouping's slots
  std::vector<std::int32_t> counts_;    // [E]
  std::vector<double> share_;           // [E] the load of one copy
  GroupPacking packing_;
  PoolSolver pool_;
  CopyOrder copy_order_;
};

}  // namespace evenkeel
