// Assigns groups of experts to nodes so that the largest load per rank of a node is minimal.
//
// Method      branch and bound over the groups by decreasing load. Each group is tried on the nodes with free
//             capacity, the lightest first; of identical nodes only one is tried. A branch is cut if the
//             remaining groups cannot be placed below the best load so far.
// Cost        with few groups, all relevant partitions are visited; otherwise the search stops after a number
//             of steps.
// Guarantee   a search that was not stopped is optimal, and `bound()` is its value. After a stopped search,
//             `bound()` is the larger of the mean and the bound from the largest group.
//
// A rank can have more load than the mean of its node. So visit_below() lists all packings, for a caller that
// knows the loads of ranks.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <numeric>
#include <span>
#include <vector>

#include "evenkeel/base/error.h"
#include "evenkeel/placement/internal/deadline.h"
#include "evenkeel/placement/internal/pool/fixed_load.h"

namespace evenkeel::internal {

class GroupPacking {
 public:
  struct Node {
    std::int32_t num_ranks = 0;
    std::int32_t fewest_groups = 1;  // the fewest with which no rank has to hold an expert twice
    std::int32_t most_groups = 0;    // the most whose experts fit into its slots

    friend bool operator==(const Node&, const Node&) = default;
  };

  // Gives every node that has slots at least its fewest groups. Throws Infeasible if that is impossible, or
  // the nodes cannot hold all groups.
  void solve(std::span<const FixedLoad> group_loads, std::span<const Node> nodes, const Deadline& deadline) {
    deadline_ = &deadline;
    group_loads_ = group_loads;
    nodes_ = nodes;
    load_.assign(nodes.size(), 0);
    held_.assign(nodes.size(), 0);
    node_of_.assign(group_loads.size(), -1);
    best_node_of_.assign(group_loads.size(), -1);
    missing_ = 0;
    for (const Node& node : nodes)
      if (node.most_groups > 0) missing_ += node.fewest_groups;
    keep_order();
    by_load_.resize(group_loads.size() * nodes.size());
    nodes_alike_ = std::ranges::all_of(nodes, [&](const Node& n) { return n == nodes[0]; });
    judge_ = nullptr;
    best_ = std::numeric_limits<double>::infinity();
    bound_ = lowest_conceivable();
    steps_left_ = kMostSteps;
    descend(0);
    if (best_node_of_[0] < 0)
      throw Infeasible(fmt::format(
          "{} groups of experts do not fit on {} nodes: a node has too few slots for its groups, or too few "
          "experts to give each slot of a rank another one; use other groups, nodes or redundant experts",
          group_loads.size(), nodes.size()));
    if (steps_left_ > 0) bound_ = best_;
  }

  // After solve(): visits every packing whose nodes all have less than `limit` load per rank; of equivalent
  // packings only one. `judge` returns the new limit. Returns false if some packings were not visited,
  // because there are more than `most` or the steps ran out.
  using Judge = std::function<double(std::span<const std::int32_t> node_of_group)>;
  bool visit_below(double limit, const Judge& judge, int most) {
    judge_ = &judge;
    best_ = limit;
    steps_left_ = kMostSteps;
    visits_left_ = most + 1;
    descend(0);
    return steps_left_ > 0 && visits_left_ > 0;
  }

  // After solve(): assigns each group, largest first, to the lightest node, equally many groups to each node.
  // Empty if nodes differ or the groups do not divide evenly.
  std::span<const std::int32_t> largest_first() {
    if (!nodes_alike_ || order_.size() % nodes_.size() != 0) return {};
    const auto each = static_cast<std::int32_t>(order_.size() / nodes_.size());
    std::ranges::fill(load_, 0);
    std::ranges::fill(held_, 0);
    for (std::int32_t group : order_) {
      std::size_t lightest = nodes_.size();
      for (std::size_t n = 0; n < nodes_.size(); ++n)
        if (held_[n] < each && (lightest == nodes_.size() || load_[n] < load_[lightest])) lightest = n;
      node_of_[static_cast<std::size_t>(group)] = static_cast<std::int32_t>(lightest);
      load_[lightest] += group_loads_[static_cast<std::size_t>(group)];
      ++held_[lightest];
    }
    number_nodes();
    std::ranges::fill(load_, 0);
    std::ranges::fill(held_, 0);
    return numbered_;
  }

  std::span<const std::int32_t> node_of_group() const { return best_node_of_; }
  std::span<const std::int32_t> by_load() const { return order_; }  // groups, the largest first
  // A lower bound on the largest load per rank of a node, in FixedLoad.
  double bound() const { return bound_; }

 private:
  static constexpr std::int64_t kMostSteps = 20000;

  double load_after(std::size_t node, FixedLoad added) const {
    return static_cast<double>(load_[node] + added) / nodes_[node].num_ranks;
  }

  void keep_order() {
    order_.resize(group_loads_.size());
    std::iota(order_.begin(), order_.end(), 0);
    const auto load = [&](std::int32_t g) { return group_loads_[static_cast<std::size_t>(g)]; };
    std::ranges::sort(order_, [&](std::int32_t a, std::int32_t b) {
      return load(a) != load(b) ? load(a) > load(b) : a < b;
    });
    rest_.assign(order_.size() + 1, 0);
    for (std::size_t i = order_.size(); i-- > 0;) rest_[i] = rest_[i + 1] + load(order_[i]);
  }

  double lowest_conceivable() const {
    std::int64_t ranks = 0;
    std::int32_t most = 1;
    for (const Node& node : nodes_) {
      if (node.most_groups > 0) ranks += node.num_ranks, most = std::max(most, node.num_ranks);
    }
    const FixedLoad largest = order_.empty() ? 0 : group_loads_[static_cast<std::size_t>(order_.front())];
    return std::max(static_cast<double>(rest_[0]) / static_cast<double>(std::max<std::int64_t>(ranks, 1)),
                    static_cast<double>(largest) / most);
  }

  bool rest_fits(std::size_t depth) const {
    if (order_.size() - depth < static_cast<std::size_t>(missing_)) return false;
    std::int64_t free_places = 0;
    double slack = 0;
    for (std::size_t n = 0; n < nodes_.size(); ++n) {
      free_places += nodes_[n].most_groups - held_[n];
      if (held_[n] < nodes_[n].most_groups)
        slack += best_ * nodes_[n].num_ranks - static_cast<double>(load_[n]);
    }
    return free_places >= static_cast<std::int64_t>(order_.size() - depth) &&
           slack > static_cast<double>(rest_[depth]);
  }

  void descend(std::size_t depth) {
    if (--steps_left_ <= 0 || (judge_ == nullptr && best_ <= bound_)) return;
    if (judge_ == nullptr && best_node_of_[0] >= 0 && deadline_->passed()) {
      steps_left_ = 0;
      return;
    }
    if (depth == order_.size()) return arrive();
    if (!rest_fits(depth)) return;
    const auto group = static_cast<std::size_t>(order_[depth]);
    const std::span<std::int32_t> tries = std::span(by_load_).subspan(depth * nodes_.size(), nodes_.size());
    std::iota(tries.begin(), tries.end(), 0);
    const auto after = [&](std::int32_t n) {
      return load_after(static_cast<std::size_t>(n), group_loads_[group]);
    };
    std::ranges::sort(tries, [&](std::int32_t a, std::int32_t b) {
      return after(a) != after(b) ? after(a) < after(b) : a < b;
    });
    for (std::size_t t = 0; t < tries.size() && after(tries[t]) < best_; ++t) {
      const auto n = static_cast<std::size_t>(tries[t]);
      if (held_[n] == nodes_[n].most_groups) continue;
      if (t > 0 && alike(static_cast<std::size_t>(tries[t - 1]), n)) continue;
      node_of_[group] = tries[t];
      load_[n] += group_loads_[group];
      missing_ -= held_[n]++ < nodes_[n].fewest_groups;
      descend(depth + 1);
      missing_ += --held_[n] < nodes_[n].fewest_groups;
      load_[n] -= group_loads_[group];
    }
  }

  bool alike(std::size_t a, std::size_t b) const {
    return load_[a] == load_[b] && held_[a] == held_[b] && nodes_[a] == nodes_[b];
  }

  void arrive() {
    if (missing_ > 0) return;
    number_nodes();
    if (judge_ != nullptr) {
      best_ = --visits_left_ > 0 ? (*judge_)(numbered_) : 0;
      return;
    }
    best_ = 0;
    for (std::size_t n = 0; n < nodes_.size(); ++n)
      if (nodes_[n].most_groups > 0) best_ = std::max(best_, load_after(n, 0));
    best_node_of_ = numbered_;
  }

  // Numbers identical nodes by the first group they hold. So few groups change nodes from one placement to
  // the next, and none where each node has one group.
  void number_nodes() {
    numbered_ = node_of_;
    if (!nodes_alike_) return;
    number_.assign(nodes_.size(), -1);
    std::int32_t next = 0;
    for (std::int32_t& node : numbered_) {
      std::int32_t& number = number_[static_cast<std::size_t>(node)];
      if (number < 0) number = next++;
      node = number;
    }
  }

  std::span<const FixedLoad> group_loads_;
  std::span<const Node> nodes_;
  std::vector<std::int32_t> order_;    // groups by decreasing load
  std::vector<FixedLoad> rest_;        // [groups + 1] load of order_[i..]
  std::vector<FixedLoad> load_;        // [nodes]
  std::vector<std::int32_t> held_;     // [nodes] number of groups
  std::vector<std::int32_t> node_of_;  // [groups]
  std::vector<std::int32_t> best_node_of_;
  std::vector<std::int32_t> by_load_;   // [depth, nodes] scratch
  std::vector<std::int32_t> number_;    // [nodes]
  std::vector<std::int32_t> numbered_;  // [groups]
  const Deadline* deadline_ = nullptr;  // after the deadline, solve() takes the first packing
  const Judge* judge_ = nullptr;
  bool nodes_alike_ = false;
  std::int64_t steps_left_ = 0;
  int visits_left_ = 0;
  std::int32_t missing_ = 0;  // groups that nodes must still get to have their fewest
  double best_ = 0;
  double bound_ = 0;
};

}  // namespace evenkeel::internal
