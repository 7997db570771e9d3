#include "evenkeel/placement/internal/pool/layer_replicas.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "evenkeel/base/error.h"

namespace evenkeel {

namespace {

// Another grouping is worth its time where ranks are further above the bound of their node than this: 1 part
// in 2^10.
constexpr int kGroupingToleranceBits = 10;
constexpr int kMostGroupings = 120;
constexpr int kFewGroupings = 6;
// The most that floating-point rounding can add to a bound, as a part of it.
constexpr double kRounding = 1e-12;

}  // namespace

LayerReplicas::LayerReplicas(const ReplicaProblem& problem, const internal::Deadline& deadline)
    : num_groups_(static_cast<std::size_t>(problem.num_groups)),
      group_size_(static_cast<std::size_t>(problem.num_experts / problem.num_groups)),
      search_{problem.repeats, problem.num_physical < PoolSolver::kFewSlots, &deadline} {
  const std::int64_t ranks = problem.num_ranks;
  for (std::int64_t r = 0; r < ranks; ++r)
    capacities_.push_back(
        static_cast<std::int32_t>((r + 1) * problem.num_physical / ranks - r * problem.num_physical / ranks));
  lay_out_nodes(problem);
  const auto experts = static_cast<std::size_t>(problem.num_experts);
  fixed_.resize(experts);
  counts_.resize(experts);
  share_.resize(experts);
  group_loads_.resize(num_groups_);
  node_load_.resize(nodes_.size());
  by_load_.resize(nodes_.size());
}

void LayerReplicas::lay_out_nodes(const ReplicaProblem& problem) {
  const std::int64_t ranks = problem.num_ranks;
  const std::int64_t nodes = num_groups_ > 1 ? problem.num_nodes : 1;
  std::size_t slot = 0;
  for (std::int64_t n = 0; n < nodes; ++n) {
    Node node{.first_rank = static_cast<std::size_t>(n * ranks / nodes), .first_slot = slot};
    node.num_ranks = static_cast<std::size_t>((n + 1) * ranks / nodes) - node.first_rank;
    for (std::size_t r = 0; r < node.num_ranks; ++r)
      node.num_slots += static_cast<std::size_t>(capacities_[node.first_rank + r]);
    slot += node.num_slots;
    if (num_groups_ > 1 && node.num_slots > 0 && node.num_slots < group_size_)
      throw Infeasible(
          fmt::format("node {} has {} slots, fewer than the {} experts of a group, which stay together", n,
                      node.num_slots, group_size_));
    nodes_.push_back(node);
    group_nodes_.push_back({.num_ranks = static_cast<std::int32_t>(node.num_ranks),
                            .most_groups = static_cast<std::int32_t>(node.num_slots / group_size_)});
  }
  if (!problem.repeats) ask_for_distinct_experts();
}

// A node needs as many experts as its fullest rank has slots, or that rank holds one twice. Where the groups
// are too few for that on every node, nothing is asked.
void LayerReplicas::ask_for_distinct_experts() {
  std::vector<std::int32_t> fewest;
  for (std::size_t n = 0; n < nodes_.size(); ++n) {
    const auto capacities = std::span(capacities_).subspan(nodes_[n].first_rank, nodes_[n].num_ranks);
    const auto fullest = static_cast<std::size_t>(*std::ranges::max_element(capacities));
    const auto groups = static_cast<std::int32_t>((fullest + group_size_ - 1) / group_size_);
    fewest.push_back(std::clamp(groups, 1, std::max(group_nodes_[n].most_groups, 1)));
  }
  if (std::reduce(fewest.begin(), fewest.end()) > static_cast<std::int32_t>(num_groups_)) return;
  for (std::size_t n = 0; n < nodes_.size(); ++n) group_nodes_[n].fewest_groups = fewest[n];
}

LayerQuality LayerReplicas::solve(std::span<const double> loads, double total,
                                  std::span<std::int32_t> expert_in_slot) {
  const double scale = fixed_scale(total);
  to_fixed(loads, scale, fixed_);
  const FixedLoad bound = nodes_.size() == 1 ? solve_flat(expert_in_slot) : solve_groups(expert_in_slot);
  if (search_.thorough && !search_.must_end()) give_hotter_experts_more_copies(expert_in_slot);
  LayerQuality quality;
  if (total <= 0) return quality;
  quality.max_over_mean = max_over_mean(loads, total, expert_in_slot);
  const double mean = total * scale / static_cast<double>(capacities_.size());
  const double fixed_bound = static_cast<double>(bound) / mean * (1 - kRounding);
  quality.bound = std::min(std::max(fixed_bound, 1.0), quality.max_over_mean);
  return quality;
}

FixedLoad LayerReplicas::solve_flat(std::span<std::int32_t> expert_in_slot) {
  const Pool pool{fixed_, capacities_, static_cast<int>(expert_in_slot.size())};
  pool_.solve(pool, 0, search_);
  std::ranges::copy(pool_.expert_in(), expert_in_slot.begin());
  return pool_.bound();
}

FixedLoad LayerReplicas::solve_groups(std::span<std::int32_t> expert_in_slot) {
  for (std::size_t g = 0; g < num_groups_; ++g)
    group_loads_[g] =
        std::reduce(fixed_.begin() + static_cast<std::ptrdiff_t>(g * group_size_),
                    fixed_.begin() + static_cast<std::ptrdiff_t>((g + 1) * group_size_), FixedLoad{0});
  packing_.solve(group_loads_, group_nodes_, *search_.deadline);
  const auto node_bound = static_cast<FixedLoad>(packing_.bound());
  const Outcome first = solve_nodes(packing_.node_of_group(), expert_in_slot);
  if (first.heaviest <= node_bound + (node_bound >> kGroupingToleranceBits)) return node_bound;
  return std::max(node_bound, try_other_groupings(first, expert_in_slot));
}

FixedLoad LayerReplicas::try_other_groupings(Outcome best, std::span<std::int32_t> expert_in_slot) {
  other_.resize(expert_in_slot.size());
  FixedLoad bound = best.heaviest;  // of all groupings; those not shown cannot be below it
  bool ended = false;
  const auto judge = [&](std::span<const std::int32_t> node_of_group) {
    ended = ended || search_.must_end();
    if (ended) return 0.0;
    const Outcome outcome = solve_nodes(node_of_group, other_);
    bound = std::min(bound, outcome.bound);
    if (outcome.heaviest < best.heaviest) {
      best = outcome;
      std::ranges::copy(other_, expert_in_slot.begin());
    }
    return static_cast<double>(best.heaviest);
  };
  const auto even = packing_.largest_first();
  if (!even.empty()) judge(even);
  const bool all = packing_.visit_below(static_cast<double>(best.heaviest), judge,
                                        search_.thorough ? kMostGroupings : kFewGroupings);
  return all && !ended ? std::min(bound, best.heaviest) : 0;
}

LayerReplicas::Outcome LayerReplicas::solve_nodes(std::span<const std::int32_t> node_of_group,
                                                  std::span<std::int32_t> expert_in_slot) {
  std::ranges::fill(node_load_, 0);
  for (std::size_t g = 0; g < num_groups_; ++g)
    node_load_[static_cast<std::size_t>(node_of_group[g])] += group_loads_[g];
  std::iota(by_load_.begin(), by_load_.end(), std::size_t{0});
  std::ranges::sort(by_load_, [&](std::size_t a, std::size_t b) {
    const auto per_rank = [&](std::size_t n) {
      return static_cast<double>(node_load_[n]) / static_cast<double>(nodes_[n].num_ranks);
    };
    return per_rank(a) != per_rank(b) ? per_rank(a) > per_rank(b) : a < b;
  });
  Outcome outcome;
  for (std::size_t node : by_load_) {
    if (nodes_[node].num_slots == 0) continue;
    const FixedLoad heaviest = solve_node(node, node_of_group, outcome.heaviest, expert_in_slot);
    outcome.heaviest = std::max(outcome.heaviest, heaviest);
    outcome.bound = std::max(outcome.bound, pool_.bound());
  }
  return outcome;
}

FixedLoad LayerReplicas::solve_node(std::size_t n, std::span<const std::int32_t> node_of_group,
                                    FixedLoad target, std::span<std::int32_t> expert_in_slot) {
  const Node& node = nodes_[n];
  local_.clear();
  global_.clear();
  for (std::int32_t group : packing_.by_load()) {
    const auto g = static_cast<std::size_t>(group);
    if (node_of_group[g] != static_cast<std::int32_t>(n)) continue;
    for (std::size_t e = g * group_size_; e < (g + 1) * group_size_; ++e) {
      local_.push_back(fixed_[e]);
      global_.push_back(static_cast<std::int32_t>(e));
    }
  }
  const Pool pool{local_, std::span(capacities_).subspan(node.first_rank, node.num_ranks),
                  static_cast<int>(node.num_slots)};
  const FixedLoad heaviest = pool_.solve(pool, target, search_);
  for (std::size_t slot = 0; slot < node.num_slots; ++slot)
    expert_in_slot[node.first_slot + slot] = global_[static_cast<std::size_t>(pool_.expert_in()[slot])];
  return heaviest;
}

void LayerReplicas::give_hotter_experts_more_copies(std::span<std::int32_t> expert_in_slot) {
  const FixedLoad most = heaviest_rank(expert_in_slot);
  for (const Node& node : nodes_) {
    const auto slots = expert_in_slot.subspan(node.first_slot, node.num_slots);
    if (slots.empty()) continue;
    global_.assign(slots.begin(), slots.end());
    std::ranges::sort(global_);
    global_.erase(std::ranges::unique(global_).begin(), global_.end());
    local_.clear();
    for (std::int32_t e : global_) local_.push_back(fixed_[static_cast<std::size_t>(e)]);
    for (std::int32_t& e : slots)
      e = static_cast<std::int32_t>(std::ranges::lower_bound(global_, e) - global_.begin());
    copy_order_.improve({local_, std::span(capacities_).subspan(node.first_rank, node.num_ranks),
                         static_cast<int>(node.num_slots)},
                        most, slots);
    for (std::int32_t& e : slots) e = global_[static_cast<std::size_t>(e)];
  }
}

FixedLoad LayerReplicas::heaviest_rank(std::span<const std::int32_t> expert_in_slot) {
  std::ranges::fill(counts_, 0);
  for (std::int32_t e : expert_in_slot) ++counts_[static_cast<std::size_t>(e)];
  FixedLoad heaviest = 0;
  std::size_t slot = 0;
  for (std::int32_t capacity : capacities_) {
    FixedLoad load = 0;
    for (std::int32_t k = 0; k < capacity; ++k) {
      const auto e = static_cast<std::size_t>(expert_in_slot[slot++]);
      load += copy_load(fixed_[e], counts_[e]);
    }
    heaviest = std::max(heaviest, load);
  }
  return heaviest;
}

double LayerReplicas::max_over_mean(std::span<const double> loads, double total,
                                    std::span<const std::int32_t> expert_in_slot) {
  std::ranges::fill(counts_, 0);
  for (std::int32_t e : expert_in_slot) ++counts_[static_cast<std::size_t>(e)];
  for (std::size_t e = 0; e < loads.size(); ++e) share_[e] = loads[e] / counts_[e];
  double heaviest = 0;
  std::size_t slot = 0;
  for (std::int32_t capacity : capacities_) {
    double load = 0;
    for (std::int32_t k = 0; k < capacity; ++k)
      load += share_[static_cast<std::size_t>(expert_in_slot[slot++])];
    heaviest = std::max(heaviest, load);
  }
  return heaviest / total * static_cast<double>(capacities_.size());
}

}  // namespace evenkeel
