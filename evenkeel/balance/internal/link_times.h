// Predicts the time of a step under a plan, for links that differ. Times are whole picoseconds, so that every
// rank predicts the same.
//
// Problem     Compute step_seconds() (cost/spill_costs.h) for a plan and its deal, to compare plans.
// Method      Rows to experts at home are added up by port once a step. For each plan, only rows to experts
//             that it splits are dealt anew.
// Cost        O(P E) a step, O(E + P S) a plan for S experts that it splits. No allocation once reserved.
// Guarantee   Equals step_seconds() up to rounding. Where counts have no sources, rows are left out.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "evenkeel/cost/spill_costs.h"
#include "evenkeel/plan/counts.h"
#include "evenkeel/plan/deal.h"
#include "evenkeel/plan/placement.h"
#include "evenkeel/plan/step_plan.h"

namespace evenkeel::internal {

class LinkTimes {
 public:
  __extension__ using Picoseconds = __int128;

  // Larger numbers of rows count as this one.
  static constexpr std::int64_t most_rows = std::int64_t{1} << 42;

  // Throws InvalidArgument ("links").
  explicit LinkTimes(const StepLinks& links);

  std::size_t num_ranks() const { return node_.size(); }
  // The ranks of a node, ascending.
  std::span<const RankId> ranks_of(std::size_t node) const { return ranks_of_[node]; }
  std::size_t num_nodes() const { return ranks_of_.size(); }

  // Sets the step that of() predicts. The arguments must outlive the calls of of().
  void read(const Counts& counts, const LayerPlacement& placement, std::span<const std::int64_t> base_load);
  Picoseconds of(const StepPlan& plan);
  // The rows of an expert that stay in their node if `rank` computes `count` of its assignments. They are
  // multiplied by how many times slower links across nodes are.
  std::int64_t kept_in_node(ExpertId expert, RankId rank, std::int64_t count) const {
    return slower_ * std::min({most_rows, count, node_rows_[node(rank) * num_experts_ + expert.offset()]});
  }

 private:
  // How many items pass each port: the ports from ranks to their nodes, and those from network interfaces to
  // other nodes.
  struct Ports {
    std::vector<std::int64_t> sent, received, left, reached;

    void clear(std::size_t ranks) {
      for (auto* ports : {&sent, &received, &left, &reached}) ports->assign(ranks, 0);
    }
  };
  struct Wire {
    Picoseconds latency = 0;
    Picoseconds of_mebibyte = 0;
  };

  std::int64_t count(RankId source, ExpertId expert) const {
    return rows_[source.offset() * num_experts_ + expert.offset()];
  }
  std::size_t node(RankId rank) const { return node_[rank.offset()]; }
  void add_home_rows(const LayerPlacement& placement);
  void pass(RankId from, RankId to, std::int64_t items);
  Picoseconds of_rows(const StepPlan& plan);
  Picoseconds of_moving(const StepPlan& plan);
  Picoseconds exchange(std::int64_t item_bytes) const;
  Picoseconds wire_seconds(const Wire& wire, Picoseconds bytes) const;

  std::vector<std::size_t> node_, nic_;        // [P]
  std::vector<std::vector<RankId>> ranks_of_;  // by node
  Wire within_, across_;
  std::int64_t slower_;  // how many times slower a link across nodes is
  std::int64_t ramp_bytes_, row_bytes_, row_trips_, borrowed_bytes_;
  Picoseconds assignment_, packing_, moving_;
  // The arguments of read(), and their sums.
  std::size_t num_experts_ = 0;
  const LayerPlacement* placement_ = nullptr;
  std::span<const std::int64_t> base_load_, loads_, rows_;
  std::vector<std::int64_t> node_rows_;    // [nodes][E]
  std::vector<std::int64_t> single_home_;  // [E] all bits set where the expert has one home
  Ports at_home_;                          // rows of experts that have one home
  // Scratch of of().
  Ports ports_;
  SplitDeal deal_;
  std::vector<std::int64_t> sends_, receives_;  // [P] numbers of borrowed experts
};

}  // namespace evenkeel::internal
