// Groups of experts onto nodes, so that the node with the most load per rank has as little as possible.
//
// Method      branch and bound over the groups by decreasing load; each goes to the nodes with a free place,
// the
//             lightest first, nodes that are alike only once. The groups left must fit below the best so far.
// Cost        few groups: all that matter of their partitions; otherwise cut off after a number of steps.
// Guarantee   optimal, and `bound()` is its value, unless cut off; then `bound()` is the mean or the largest
//             group's.
//
// A rank of a node can have more load than the mean of the node. So visit_below() lists all packings, for a
// caller that knows the loads of ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "evenkeel/placement/internal/deadline.h"
#include "evenkeel/placement/internal/pool/fixed_load.h"

namespace evenkeel {

class GroupPacking {
 public:
  struct Node {
    std::int32_t num_ranks = 0;
    std::int32_t fewest_groups = 1;  // with which a rank need not hold an expert twice
    std::int32_t most_groups = 0;    // for whose experts it has slots
  };

  // Every node that has slots gets its fewest groups or more. Throws Infeasible where that, or capacity for
  // all, cannot be.
  void solve(std::span<const FixedLoad> group_loads, std::span<const Node> nodes,
             const internal::Deadline& deadline);

  // After solve(): shows every packing (one of those that are alike) whose nodes are all below `limit` per
  // rank. `judge` returns the limit from there on. False: some were not shown, more than `most` or
  // too many steps away.
  using Judge = std::function<double(std::span<const std::int32_t> node_of_group)>;
  bool visit_below(double limit, const Judge& judge, int most);

  // After solve(): the largest group first to the lightest node, nodes with equally many groups; empty where
  // they are unlike or the groups do not divide.
  std::span<const std::int32_t> largest_first();

  std::span<const std::int32_t> node_of_group() const { return best_node_of_; }
  std::span<const std::int32_t> by_load() const { return order_; }  // groups, the largest first
  // Of the largest load per rank of a node, in FixedLoad; nobody goes below.
  double bound() const { return bound_; }

 private:
  double lowest_conceivable() const;
  void keep_order();
  void descend(std::size_t depth);
  void arrive();
  void number_nodes();
  bool rest_fits(std::size_t depth) const;
  bool alike(std::size_t a, std::size_t b) const;
  double load_after(std::size_t node, FixedLoad added) const {
    return static_cast<double>(load_[node] + added) / nodes_[node].num_ranks;
  }

  std::span<const FixedLoad> group_loads_;
  std::span<const Node> nodes_;
  std::vector<std::int32_t> order_;    // groups by decreasing load
  std::vector<FixedLoad> rest_;        // [groups + 1] load of order_[i..]
  std::vector<FixedLoad> load_;        // [nodes]
  std::vector<std::int32_t> held_;     // [nodes] groups
  std::vector<std::int32_t> node_of_;  // [groups]
  std::vector<std::int32_t> best_node_of_;
  std::vector<std::int32_t> by_load_;             // [depth, nodes] scratch
  std::vector<std::int32_t> number_;              // [nodes]
  std::vector<std::int32_t> numbered_;            // [groups]
  const internal::Deadline* deadline_ = nullptr;  // of solve(), which takes the first packing after it
  const Judge* judge_ = nullptr;
  bool nodes_alike_ = false;
  std::int64_t steps_left_ = 0;
  int visits_left_ = 0;
  std::int32_t missing_ = 0;  // groups that nodes must still get
  double best_ = 0;
  double bound_ = 0;
};

}  // namespace evenkeel
