#include "evenkeel/placement/replicas/every_node.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "evenkeel/placement/internal/deadline.h"
#include "evenkeel/placement/internal/pool/pool_solver.h"

namespace evenkeel {

namespace {

using internal::Deadline;
using internal::FixedLoad;

// The sizes of a node; the same in every layer.
struct NodeShape {
  std::size_t nodes = 0;
  std::size_t ranks = 0;       // in a node
  std::size_t slots = 0;       // in a rank
  std::size_t everywhere = 0;  // experts on every node
  std::size_t twice = 0;       // slots left over; each of the first nodes has one
  std::size_t singles(std::size_t node) const { return ranks * slots - everywhere - (node < twice ? 1 : 0); }
};

std::optional<NodeShape> shape_of(const ReplicaProblem& problem) {
  const auto nodes = static_cast<std::size_t>(problem.num_nodes);
  const auto ranks = static_cast<std::size_t>(problem.num_ranks);
  const auto physical = static_cast<std::size_t>(problem.num_physical);
  const auto copies = physical - static_cast<std::size_t>(problem.num_experts);
  if (nodes < 2 || problem.num_groups > 1 || ranks % nodes != 0 || physical % ranks != 0) return std::nullopt;
  const NodeShape shape{.nodes = nodes,
                        .ranks = ranks / nodes,
                        .slots = physical / ranks,
                        .everywhere = copies / (nodes - 1),
                        .twice = copies % (nodes - 1)};
  const std::size_t of_node = shape.ranks * shape.slots;
  if (shape.everywhere == 0 || of_node < shape.everywhere + 2) return std::nullopt;
  if (shape.everywhere + shape.singles(0) < shape.slots + 1 || shape.ranks < 2) return std::nullopt;
  return shape;
}

class EveryNode {
 public:
  EveryNode(const NodeShape& shape, const Deadline& deadline)
      : shape_(shape), search_{.repeats = false, .thorough = false, .deadline = &deadline} {}

  void solve(std::span<const double> loads, std::span<std::int32_t> expert_in_slot) {
    std::vector<std::int32_t> by_load(loads.size());
    std::iota(by_load.begin(), by_load.end(), 0);
    const auto load_of = [&](std::int32_t e) { return loads[static_cast<std::size_t>(e)]; };
    std::ranges::stable_sort(by_load, std::greater{}, load_of);
    const auto everywhere = std::span(by_load).first(shape_.everywhere);
    deal_singles(std::span(by_load).subspan(shape_.everywhere), load_of);
    const double total = std::reduce(loads.begin(), loads.end(), 0.0);
    const double scale = internal::fixed_scale(total);
    for (std::size_t node = 0; node < shape_.nodes; ++node) {
      std::vector<std::int32_t> experts(everywhere.begin(), everywhere.end());
      experts.insert(experts.end(), singles_[node].begin(), singles_[node].end());
      std::vector<double> parts;
      for (std::size_t i = 0; i < experts.size(); ++i)
        parts.push_back(load_of(experts[i]) /
                        (i < shape_.everywhere ? static_cast<double>(shape_.nodes) : 1));
      std::vector<FixedLoad> fixed(parts.size());
      internal::to_fixed(parts, scale, fixed);
      const std::size_t of_node = shape_.ranks * shape_.slots;
      pack(experts, fixed, node < shape_.twice, expert_in_slot.subspan(node * of_node, of_node));
    }
  }

 private:
  // Gives each node as many experts as it has slots for, largest first to the lightest node.
  template <class F>
  void deal_singles(std::span<const std::int32_t> singles, const F& load_of) {
    singles_.assign(shape_.nodes, {});
    std::vector<double> sums(shape_.nodes, 0);
    for (const std::int32_t expert : singles) {
      std::size_t lightest = shape_.nodes;
      for (std::size_t node = 0; node < shape_.nodes; ++node)
        if (singles_[node].size() < shape_.singles(node) &&
            (lightest == shape_.nodes || sums[node] < sums[lightest]))
          lightest = node;
      singles_[lightest].push_back(expert);
      sums[lightest] += load_of(expert);
    }
  }

  // If `one_twice`, one slot of the last rank stays free. That slot gets a second copy of the coldest of the
  // node's experts that are not on that rank yet.
  void pack(const std::vector<std::int32_t>& experts, std::span<const FixedLoad> loads, bool one_twice,
            std::span<std::int32_t> expert_in_slot) {
    std::vector<std::int32_t> capacities(shape_.ranks, static_cast<std::int32_t>(shape_.slots));
    if (one_twice) --capacities.back();
    pool_.solve({loads, capacities, static_cast<int>(experts.size())}, 0, search_);
    for (std::size_t slot = 0; slot < experts.size(); ++slot)
      expert_in_slot[slot] = experts[static_cast<std::size_t>(pool_.expert_in()[slot])];
    if (!one_twice) return;
    const auto last = expert_in_slot.subspan(expert_in_slot.size() - shape_.slots, shape_.slots - 1);
    const auto coldest = std::ranges::find_if(experts.rbegin(), experts.rend(), [&](std::int32_t expert) {
      return std::ranges::find(last, expert) == last.end();
    });
    expert_in_slot.back() = *coldest;
  }

  NodeShape shape_;
  internal::PoolSolver::Search search_;
  internal::PoolSolver pool_;
  std::vector<std::vector<std::int32_t>> singles_;  // by node, the node's experts hottest first
};

}  // namespace

std::optional<ReplicaSolution> replicate_on_every_node(const ReplicaProblem& problem) {
  const std::optional<NodeShape> shape = shape_of(problem);
  if (!shape) return std::nullopt;
  const Deadline deadline(problem.limits);
  const auto layers = static_cast<std::size_t>(problem.num_layers);
  const auto slots = static_cast<std::size_t>(problem.num_physical);
  const auto experts = static_cast<std::size_t>(problem.num_experts);
  ReplicaSolution solution;
  solution.physical_to_logical.resize(layers * slots);
  solution.slots_per_rank.assign(static_cast<std::size_t>(problem.num_ranks),
                                 static_cast<std::int32_t>(shape->slots));
  EveryNode solver(*shape, deadline);
  for (std::size_t l = 0; l < layers; ++l)
    solver.solve(problem.loads.subspan(l * experts, experts),
                 std::span(solution.physical_to_logical).subspan(l * slots, slots));
  return solution;
}

}  // namespace evenkeel
