#include "evenkeel/placement/replicas/replicas.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "evenkeel/base/error.h"
#include "evenkeel/placement/internal/deadline.h"
#include "evenkeel/placement/internal/pool/copy_order.h"
#include "evenkeel/placement/internal/pool/pool.h"
#include "evenkeel/placement/internal/pool/pool_solver.h"
#include "evenkeel/placement/replicas/internal/group_packing.h"

namespace evenkeel {

namespace internal {

namespace {

// Another grouping is tried only if a rank exceeds its node's bound by more than 1 part in 2^10.
constexpr int kGroupingToleranceBits = 10;
constexpr int kMostGroupings = 120;
constexpr int kFewGroupings = 6;

struct LayerQuality {
  double max_over_mean = 1;
  double bound = 1;
};

// The slots of rank r: floor((r + 1) S / P) - floor(r S / P).
std::vector<std::int32_t> slots_of_ranks(const ReplicaProblem& problem) {
  const std::int64_t ranks = problem.num_ranks;
  std::vector<std::int32_t> slots;
  for (std::int64_t r = 0; r < ranks; ++r)
    slots.push_back(
        static_cast<std::int32_t>((r + 1) * problem.num_physical / ranks - r * problem.num_physical / ranks));
  return slots;
}

// The fewest groups with enough experts that the node's fullest rank holds a different expert in each slot.
std::int32_t groups_for(std::span<const std::int32_t> slots_of_ranks, std::size_t group_size) {
  const auto fullest = static_cast<std::size_t>(std::ranges::max(slots_of_ranks));
  return static_cast<std::int32_t>((fullest + group_size - 1) / group_size);
}

bool may_be_distinct(const ReplicaProblem& problem) {
  const std::vector<std::int32_t> slots = slots_of_ranks(problem);
  if (problem.num_groups == 1) return std::ranges::max(slots) <= problem.num_experts;
  const auto group_size = static_cast<std::size_t>(problem.num_experts / problem.num_groups);
  std::int64_t groups = 0;
  for (const NodeSlots& node : nodes_of(slots, static_cast<std::size_t>(problem.num_nodes)))
    groups += groups_for(node.ranks_of(std::span(slots)), group_size);
  return groups <= problem.num_groups;
}

// Solves one layer: assigns groups to nodes, then chooses copies and assigns them to ranks within each node.
// Measures the result in the caller's loads. Keeps the memory of the largest layer so far.
class LayerReplicas {
 public:
  // Reads only the sizes. Throws Infeasible if the groups cannot be packed into the nodes.
  LayerReplicas(const ReplicaProblem& problem, const Deadline& deadline)
      : num_groups_(static_cast<std::size_t>(problem.num_groups)),
        group_size_(static_cast<std::size_t>(problem.num_experts / problem.num_groups)),
        deadline_(deadline),
        search_{problem.repeats, problem.num_physical < kFewSlots, &deadline},
        capacities_(slots_of_ranks(problem)),
        nodes_(nodes_of(capacities_, num_groups_ > 1 ? static_cast<std::size_t>(problem.num_nodes) : 1)),
        fixed_(static_cast<std::size_t>(problem.num_experts)),
        group_loads_(num_groups_),
        by_load_(nodes_.size()),
        node_load_(nodes_.size()),
        share_(fixed_.size()) {
    for (std::size_t n = 0; n < nodes_.size(); ++n) {
      const std::size_t slots = nodes_[n].num_slots;
      if (num_groups_ > 1 && slots > 0 && slots < group_size_)
        throw Infeasible(fmt::format(
            "node {} has {} slots, but a group has {} experts, which stay on one node; use fewer nodes "
            "or smaller groups",
            n, slots, group_size_));
      group_nodes_.push_back({.num_ranks = static_cast<std::int32_t>(nodes_[n].num_ranks),
                              .most_groups = static_cast<std::int32_t>(slots / group_size_)});
    }
    if (!problem.repeats) ask_for_distinct_experts();
  }

  std::span<const std::int32_t> capacities() const { return capacities_; }

  LayerQuality solve(std::span<const double> loads, double total, std::span<std::int32_t> expert_in_slot) {
    const double scale = fixed_scale(total);
    to_fixed(loads, scale, fixed_);
    const FixedLoad bound = nodes_.size() == 1 ? solve_flat(expert_in_slot) : solve_groups(expert_in_slot);
    if (search_.thorough && !deadline_.passed()) give_hotter_experts_more_copies(expert_in_slot);
    LayerQuality quality;
    if (total <= 0) return quality;
    quality.max_over_mean = max_over_mean(loads, total, expert_in_slot);
    const double mean = total * scale / static_cast<double>(capacities_.size());
    const double fixed_bound = static_cast<double>(bound) / mean * (1 - kBoundRounding);
    quality.bound = std::min(std::max(fixed_bound, 1.0), quality.max_over_mean);
    return quality;
  }

 private:
  struct Outcome {
    FixedLoad heaviest = 0;
    FixedLoad bound = 0;
  };

  // A node needs at least as many experts as its fullest rank has slots; otherwise that rank holds an expert
  // twice. Requires this of all nodes, or of no node if there are too few groups.
  void ask_for_distinct_experts() {
    std::vector<std::int32_t> fewest;
    for (std::size_t n = 0; n < nodes_.size(); ++n) {
      const std::int32_t groups = groups_for(nodes_[n].ranks_of(capacities()), group_size_);
      fewest.push_back(std::clamp(groups, 1, std::max(group_nodes_[n].most_groups, 1)));
    }
    if (std::reduce(fewest.begin(), fewest.end()) > static_cast<std::int32_t>(num_groups_)) return;
    for (std::size_t n = 0; n < nodes_.size(); ++n) group_nodes_[n].fewest_groups = fewest[n];
  }

  FixedLoad solve_flat(std::span<std::int32_t> expert_in_slot) {
    const Pool pool{fixed_, capacities_, static_cast<int>(expert_in_slot.size())};
    pool_.solve(pool, 0, search_);
    std::ranges::copy(pool_.expert_in(), expert_in_slot.begin());
    return pool_.bound();
  }

  FixedLoad solve_groups(std::span<std::int32_t> expert_in_slot) {
    for (std::size_t g = 0; g < num_groups_; ++g)
      group_loads_[g] =
          std::reduce(fixed_.begin() + static_cast<std::ptrdiff_t>(g * group_size_),
                      fixed_.begin() + static_cast<std::ptrdiff_t>((g + 1) * group_size_), FixedLoad{0});
    packing_.solve(group_loads_, group_nodes_, deadline_);
    const auto node_bound = static_cast<FixedLoad>(packing_.bound());
    const Outcome first = solve_nodes(packing_.node_of_group(), expert_in_slot);
    if (first.heaviest <= node_bound + (node_bound >> kGroupingToleranceBits)) return node_bound;
    return std::max(node_bound, try_other_groupings(first, expert_in_slot));
  }

  FixedLoad try_other_groupings(Outcome best, std::span<std::int32_t> expert_in_slot) {
    other_.resize(expert_in_slot.size());
    FixedLoad bound = best.heaviest;  // over all groupings; the unvisited ones are not lower
    bool ended = false;
    const auto judge = [&](std::span<const std::int32_t> node_of_group) {
      ended = ended || deadline_.passed();
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

  // Solves all nodes, the most loaded first. Each search stops once its node is lighter than the heaviest
  // node so far.
  Outcome solve_nodes(std::span<const std::int32_t> node_of_group, std::span<std::int32_t> expert_in_slot) {
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

  FixedLoad solve_node(std::size_t n, std::span<const std::int32_t> node_of_group, FixedLoad target,
                       std::span<std::int32_t> expert_in_slot) {
    const NodeSlots& node = nodes_[n];
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
    const Pool pool{local_, node.ranks_of(capacities()), static_cast<int>(node.num_slots)};
    const FixedLoad heaviest = pool_.solve(pool, target, search_);
    for (std::size_t slot = 0; slot < node.num_slots; ++slot)
      expert_in_slot[node.first_slot + slot] = global_[static_cast<std::size_t>(pool_.expert_in()[slot])];
    return heaviest;
  }

  // A thorough search returns the first of several equally good answers. This function gives hotter experts
  // more copies, as long as no rank exceeds the heaviest one.
  void give_hotter_experts_more_copies(std::span<std::int32_t> expert_in_slot) {
    count_copies(expert_in_slot, fixed_.size(), counts_);
    const auto most = heaviest_rank<FixedLoad>(
        expert_in_slot, capacities_, [&](std::size_t e) { return copy_load(fixed_[e], counts_[e]); });
    for (const NodeSlots& node : nodes_) {
      const auto slots = node.slots_of(expert_in_slot);
      if (slots.empty()) continue;
      const std::vector<std::int32_t> experts = number_experts(slots);
      local_.clear();
      for (std::int32_t e : experts) local_.push_back(fixed_[static_cast<std::size_t>(e)]);
      order_copies({local_, node.ranks_of(capacities()), static_cast<int>(node.num_slots)}, most, slots);
      for (std::int32_t& e : slots) e = experts[static_cast<std::size_t>(e)];
    }
  }

  double max_over_mean(std::span<const double> loads, double total,
                       std::span<const std::int32_t> expert_in_slot) {
    count_copies(expert_in_slot, loads.size(), counts_);
    for (std::size_t e = 0; e < loads.size(); ++e) share_[e] = loads[e] / counts_[e];
    const auto heaviest =
        heaviest_rank<double>(expert_in_slot, capacities_, [&](std::size_t e) { return share_[e]; });
    return heaviest / total * static_cast<double>(capacities_.size());
  }

  std::size_t num_groups_;
  std::size_t group_size_;
  const Deadline& deadline_;
  PoolSolver::Search search_;
  std::vector<std::int32_t> capacities_;
  std::vector<NodeSlots> nodes_;
  std::vector<GroupPacking::Node> group_nodes_;

  std::vector<FixedLoad> fixed_;        // [E]
  std::vector<FixedLoad> group_loads_;  // [groups]
  std::vector<std::size_t> by_load_;    // nodes by decreasing load per rank
  std::vector<FixedLoad> node_load_;    // [nodes]
  std::vector<FixedLoad> local_;        // loads of a node's experts
  std::vector<std::int32_t> global_;    // the ids of these experts
  std::vector<std::int32_t> other_;     // [S] slots of another grouping
  std::vector<std::int32_t> counts_;    // [E]
  std::vector<double> share_;           // [E] the load of one copy
  GroupPacking packing_;
  PoolSolver pool_;
};

void require(bool holds, const char* argument, const std::string& why, const std::string& allowed) {
  if (!holds) throw InvalidArgument(argument, why, allowed);
}

void require_sizes(const ReplicaProblem& p) {
  require(p.num_layers >= 1, "num_layers", fmt::format("{} layers", p.num_layers), "1 or more");
  require(p.num_experts >= 1 && p.num_experts < kMostIndexed, "num_experts",
          fmt::format("{} experts", p.num_experts), fmt::format("1..{}", kMostIndexed - 1));
  require(p.num_physical < kMostIndexed, "num_physical", fmt::format("{} slots", p.num_physical),
          fmt::format("fewer than {}", kMostIndexed));
  require(p.num_ranks >= 1 && p.num_ranks < kMostIndexed, "num_ranks", fmt::format("{} ranks", p.num_ranks),
          fmt::format("1..{}", kMostIndexed - 1));
  require(p.num_nodes >= 1 && p.num_nodes <= p.num_ranks, "num_nodes",
          fmt::format("{} nodes for {} ranks", p.num_nodes, p.num_ranks), fmt::format("1..{}", p.num_ranks));
  require(p.num_groups >= 1 && p.num_experts % p.num_groups == 0, "num_groups",
          fmt::format("{} experts cannot form {} groups of equal size", p.num_experts, p.num_groups),
          fmt::format("a divisor of {}", p.num_experts));
  if (p.num_physical < p.num_experts)
    throw Infeasible(fmt::format("{} slots are too few for {} experts: each expert needs one", p.num_physical,
                                 p.num_experts));
}

void require_num_loads(const ReplicaProblem& p) {
  const auto wanted = static_cast<std::size_t>(p.num_layers) * static_cast<std::size_t>(p.num_experts);
  require(p.loads.size() == wanted, "loads", fmt::format("{} numbers", p.loads.size()),
          fmt::format("{} layers x {} experts", p.num_layers, p.num_experts));
}

// The sum of a layer's loads. Throws InvalidArgument for a load that is negative or not finite.
double total_load(const ReplicaProblem& p, std::size_t layer) {
  const auto experts = static_cast<std::size_t>(p.num_experts);
  double total = 0;
  for (std::size_t e = 0; e < experts; ++e) {
    const double load = p.loads[layer * experts + e];
    if (!std::isfinite(load) || load < 0)
      throw InvalidArgument("loads", fmt::format("layer {}, expert {}: {}", layer, e, load),
                            "0 or more, finite");
    total += load;
  }
  if (!std::isfinite(total))
    throw InvalidArgument("loads", fmt::format("the loads of layer {} add up to {}", layer, total),
                          "a finite total");
  return total;
}

}  // namespace

}  // namespace internal

void require_distinct_experts(const ReplicaProblem& problem) {
  internal::require_sizes(problem);
  ReplicaProblem possible = problem;
  // A rank with more slots than this has more slots than its node has experts.
  const std::int64_t most_of_rank = (std::int64_t{problem.num_groups} + problem.num_nodes - 1) /
                                    problem.num_nodes * (problem.num_experts / problem.num_groups);
  possible.num_physical =
      static_cast<int>(std::min<std::int64_t>(problem.num_physical, (most_of_rank + 1) * problem.num_ranks));
  while (possible.num_physical > problem.num_experts && !internal::may_be_distinct(possible))
    --possible.num_physical;
  if (possible.num_physical == problem.num_physical) return;
  throw Infeasible(fmt::format(
      "{} redundant experts: a rank would hold an expert twice, which a placement cannot express; at "
      "most {} fit with {} experts{} on {} ranks",
      problem.num_physical - problem.num_experts, possible.num_physical - problem.num_experts,
      problem.num_experts, problem.num_groups > 1 ? fmt::format(" in {} groups", problem.num_groups) : "",
      problem.num_ranks));
}

ReplicaSolution replicate(const ReplicaProblem& problem) {
  internal::require_sizes(problem);
  internal::require_num_loads(problem);
  const auto layers = static_cast<std::size_t>(problem.num_layers);
  const auto slots = static_cast<std::size_t>(problem.num_physical);
  const auto experts = static_cast<std::size_t>(problem.num_experts);
  ReplicaSolution solution;
  solution.physical_to_logical.resize(layers * slots);
  solution.max_over_mean.resize(layers);
  solution.bound.resize(layers);
  const internal::Deadline deadline(problem.limits);
  internal::LayerReplicas solver(problem, deadline);
  solution.slots_per_rank.assign(solver.capacities().begin(), solver.capacities().end());
  for (std::size_t l = 0; l < layers; ++l) {
    const double total = internal::total_load(problem, l);
    const internal::LayerQuality quality =
        solver.solve(problem.loads.subspan(l * experts, experts), total,
                     std::span(solution.physical_to_logical).subspan(l * slots, slots));
    solution.max_over_mean[l] = quality.max_over_mean;
    solution.bound[l] = quality.bound;
  }
  return solution;
}

Placement placement_of(const ReplicaSolution& solution, int num_experts) {
  const auto slots = static_cast<std::size_t>(
      std::reduce(solution.slots_per_rank.begin(), solution.slots_per_rank.end(), std::int64_t{0}));
  const auto num_ranks = static_cast<int>(solution.slots_per_rank.size());
  if (slots == 0) throw InvalidArgument("slots_per_rank", "no slots", "at least one");
  std::vector<LayerPlacement> layers;
  for (std::size_t l = 0; l < solution.physical_to_logical.size() / slots; ++l) {
    std::vector<std::vector<int>> homes(static_cast<std::size_t>(num_experts));
    std::size_t slot = l * slots;
    for (int rank = 0; rank < num_ranks; ++rank)
      for (std::int32_t k = 0; k < solution.slots_per_rank[static_cast<std::size_t>(rank)]; ++k, ++slot) {
        const auto expert = static_cast<std::size_t>(solution.physical_to_logical[slot]);
        if (!homes[expert].empty() && homes[expert].back() == rank)
          throw Infeasible(fmt::format(
              "layer {}: rank {} holds expert {} twice, which a placement cannot express", l, rank, expert));
        homes[expert].push_back(rank);
      }
    layers.emplace_back(homes, num_ranks);
  }
  return Placement(std::move(layers));
}

}  // namespace evenkeel
