// Picoseconds of a step under a plan where links differ, in whole numbers: every rank predicts the same.
//
// Problem     What step_seconds() (cost/spill_costs.h) says of a plan and its deal, to compare plans.
// Method      Rows of experts at home are added up once a step, by port; of a plan, only those of experts
//             that it splits are dealt anew.
// Cost        O(P E) a step, O(E + P S) a plan for S experts that it splits. No allocation once reserved.
// Guarantee   That of step_seconds(), but for rounding. Where counts have no sources, without rows.
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

  static constexpr std::int64_t most_rows = std::int64_t{1} << 42;  // that are worth telling apart

  // Throws InvalidArgument ("links").
  explicit LinkTimes(const StepLinks& links);

  std::size_t num_ranks() const { return node_.size(); }
  // In order.
  std::span<const RankId> ranks_of(std::size_t node) const { return ranks_of_[node]; }
  std::size_t num_nodes() const { return ranks_of_.size(); }

  // The step that of() speaks of from now on. What is viewed must stay.
  void read(const Counts& counts, const LayerPlacement& placement, std::span<const std::int64_t> base_load);
  Picoseconds of(const StepPlan& plan);
  // Rows of an expert that stay in their node where a rank computes so many, each counted as often as a link
  // across is slower.
  std::int64_t kept_in_node(ExpertId expert, RankId rank, std::int64_t count) const {
    return slower_ * std::min({most_rows, count, node_rows_[node(rank) * num_experts_ + expert.offset()]});
  }

 private:
  // Items that pass the ports of ranks to their nodes, and of network interfaces to other nodes.
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
  std::int64_t slower_;  // a link across
  std::int64_t ramp_bytes_, row_bytes_, row_ways_, borrowed_bytes_;
  Picoseconds assignment_, packing_, moving_;
  // What read() was given, and added up.
  std::size_t num_experts_ = 0;
  const LayerPlacement* placement_ = nullptr;
  std::span<const std::int64_t> base_load_, loads_, rows_;
  std::vector<std::int64_t> node_rows_;    // [nodes][E]
  std::vector<std::int64_t> single_home_;  // [E] all bits set where the expert has one home
  Ports at_home_;                          // rows of experts that have one home
  // What of() works with.
  Ports ports_;
  SplitDeal deal_;
  std::vector<std::int64_t> sends_, receives_;  // [P] borrowed experts
};

}  // namespace evenkeel::internal
