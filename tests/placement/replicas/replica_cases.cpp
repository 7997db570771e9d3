#include "tests/placement/replicas/replica_cases.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <sstream>
#include <utility>

namespace evenkeel {

namespace {

double unit(std::mt19937_64& random) {
  return static_cast<double>(random() >> 11) * 0x1p-53;
}

double bell(std::mt19937_64& random) {
  double sum = -6;
  for (int i = 0; i < 12; ++i) sum += unit(random);
  return sum;
}

// Tries all fillings: fills the slots in order, each with every expert that the rules allow.
class Exhaustion {
 public:
  using Show = std::function<void(const std::vector<std::int32_t>&, const std::vector<int>&)>;

  Exhaustion(const ReplicaCase& c, const Show& show)
      : case_(c), show_(show), used_(static_cast<std::size_t>(c.num_experts), 0) {
    for (std::int64_t r = 0; r < c.num_ranks; ++r)
      for (std::int64_t s = r * c.num_physical / c.num_ranks; s < (r + 1) * c.num_physical / c.num_ranks; ++s)
        rank_of_slot_.push_back(static_cast<int>(r));
    for (std::int64_t n = 0; n < c.num_nodes; ++n)
      for (std::int64_t r = n * c.num_ranks / c.num_nodes; r < (n + 1) * c.num_ranks / c.num_nodes; ++r)
        node_of_rank_.push_back(static_cast<int>(n));
    expert_in_.assign(rank_of_slot_.size(), -1);
  }

  void run() { fill(0); }

 private:
  int node_of_slot(std::size_t slot) const {
    return case_.num_groups > 1 ? node_of_rank_[static_cast<std::size_t>(rank_of_slot_[slot])] : 0;
  }
  int group_of(int expert) const { return expert / (case_.num_experts / case_.num_groups); }

  bool allowed(std::size_t slot, int expert) const {
    for (std::size_t s = 0; s < slot; ++s) {
      // Experts ascend within a rank, so each set of experts occurs once.
      if (rank_of_slot_[s] == rank_of_slot_[slot] && expert_in_[s] >= expert) return false;
      if (group_of(expert_in_[s]) == group_of(expert) && node_of_slot(s) != node_of_slot(slot)) return false;
    }
    return true;
  }

  void fill(std::size_t slot) {
    const auto missing = static_cast<std::size_t>(std::ranges::count(used_, 0));
    if (missing > rank_of_slot_.size() - slot) return;
    if (slot == rank_of_slot_.size()) return show_(expert_in_, used_);
    for (int e = 0; e < case_.num_experts; ++e) {
      if (!allowed(slot, e)) continue;
      expert_in_[slot] = e;
      ++used_[static_cast<std::size_t>(e)];
      fill(slot + 1);
      --used_[static_cast<std::size_t>(e)];
    }
  }

  const ReplicaCase& case_;
  const Show& show_;
  std::vector<int> rank_of_slot_;
  std::vector<int> node_of_rank_;
  std::vector<std::int32_t> expert_in_;
  std::vector<int> used_;
};

// [P] rank loads for slots filled with `expert_in`, computed by walking the slots.
std::vector<double> loads_of_slots(std::span<const std::int32_t> slots_of_rank,
                                   std::span<const std::int32_t> expert_in, std::span<const double> loads) {
  std::vector<double> of_rank;
  std::size_t slot = 0;
  for (std::int32_t slots : slots_of_rank) {
    of_rank.push_back(0);
    for (std::int32_t k = 0; k < slots; ++k) {
      const std::int32_t e = expert_in[slot++];
      of_rank.back() +=
          loads[static_cast<std::size_t>(e)] / static_cast<double>(std::ranges::count(expert_in, e));
    }
  }
  return of_rank;
}

std::vector<std::int32_t> slots_of_ranks(const ReplicaCase& c) {
  std::vector<std::int32_t> slots;
  for (std::int64_t r = 0; r < c.num_ranks; ++r)
    slots.push_back(
        static_cast<std::int32_t>((r + 1) * c.num_physical / c.num_ranks - r * c.num_physical / c.num_ranks));
  return slots;
}

}  // namespace

std::string ReplicaCase::text() const {
  std::ostringstream text;
  text << num_layers << " x " << num_experts << " into " << num_physical << " on " << num_ranks << " ranks, "
       << num_nodes << " nodes, " << num_groups << " groups:";
  for (std::size_t i = 0; i < std::min<std::size_t>(loads.size(), 40); ++i) text << " " << loads[i];
  return text.str();
}

int draw_int(std::mt19937_64& random, int least, int most) {
  return least + static_cast<int>(random() % static_cast<std::uint64_t>(most - least + 1));
}

std::vector<double> replica_loads(std::mt19937_64& random, int count) {
  std::vector<double> loads(static_cast<std::size_t>(count), 0.0);
  const int kind = draw_int(random, 0, 7);
  for (double& load : loads) {
    if (kind == 1) load = draw_int(random, 0, 3) == 0 ? draw_int(random, 1, 100) : 0;
    if (kind == 2) load = 7;
    if (kind == 3) load = draw_int(random, 1, 3);
    if (kind == 4) load = std::floor(100 / (1e-3 + unit(random)));
    if (kind == 5) load = std::floor(1000 * std::exp(bell(random)));
    if (kind == 6) load = unit(random) * 1e-3;
    if (kind == 7) load = draw_int(random, 1, 1000);
  }
  if (kind == 0) loads[random() % loads.size()] = draw_int(random, 0, 5) * 1e6;
  return loads;
}

ReplicaCase random_replica_case(std::mt19937_64& random, int most_experts, int most_ranks, bool grouped) {
  ReplicaCase c;
  c.num_layers = draw_int(random, 1, 3);
  c.num_ranks = draw_int(random, 1, most_ranks);
  c.num_experts = draw_int(random, 1, most_experts);
  if (grouped) {
    c.num_nodes = draw_int(random, 1, c.num_ranks);
    c.num_groups = draw_int(random, c.num_nodes, std::max(c.num_nodes, most_experts / 2));
    c.num_experts = c.num_groups * draw_int(random, 1, std::max(1, most_experts / c.num_groups));
  }
  const int most = std::min(c.num_experts * c.num_ranks, 2 * c.num_experts + c.num_ranks);
  c.num_physical = draw_int(random, c.num_experts, most);
  if (grouped || random() % 2 == 0)  // the same number of slots per rank if possible
    c.num_physical = std::max(c.num_physical / c.num_ranks * c.num_ranks, c.num_experts);
  for (int l = 0; l < c.num_layers; ++l)
    for (double load : replica_loads(random, c.num_experts)) c.loads.push_back(load);
  return c;
}

std::vector<double> rank_loads_of(const ReplicaCase& c, const ReplicaSolution& solution, int layer) {
  const auto experts = static_cast<std::size_t>(c.num_experts),
             slots = static_cast<std::size_t>(c.num_physical);
  const auto at = static_cast<std::size_t>(layer);
  return loads_of_slots(solution.slots_per_rank,
                        std::span(solution.physical_to_logical).subspan(at * slots, slots),
                        std::span(c.loads).subspan(at * experts, experts));
}

double max_over_mean_of(const LayerPlacement& placement, std::span<const double> loads) {
  std::vector<double> sums(static_cast<std::size_t>(placement.num_ranks()), 0.0);
  for (ExpertId e : indices<ExpertId>(placement.num_experts()))
    for (RankId home : placement.homes(e))
      sums[home.offset()] += loads[e.offset()] / static_cast<double>(placement.homes(e).size());
  return max_over_mean_of(sums);
}

int new_homes(const LayerPlacement& before, const LayerPlacement& after) {
  int count = 0;
  for (ExpertId e : indices<ExpertId>(after.num_experts()))
    for (RankId home : after.homes(e)) count += !before.is_home(e, home);
  return count;
}

void for_all_fillings(const ReplicaCase& c,
                      const std::function<void(const std::vector<std::int32_t>& expert_in,
                                               const std::vector<int>& copies)>& show) {
  Exhaustion(c, show).run();
}

double max_over_mean_of(const std::vector<double>& rank_loads) {
  const double total = std::accumulate(rank_loads.begin(), rank_loads.end(), 0.0);
  if (total == 0) return 1;
  return std::ranges::max(rank_loads) * static_cast<double>(rank_loads.size()) / total;
}

double best_of_all(const ReplicaCase& c) {
  double best = std::numeric_limits<double>::infinity();
  for_all_fillings(c, [&](const std::vector<std::int32_t>& expert_in, const std::vector<int>&) {
    best = std::min(best, max_over_mean_of(loads_of_slots(slots_of_ranks(c), expert_in, c.loads)));
  });
  return best;
}

CopyOrders orders_of(const std::vector<double>& loads, const std::vector<int>& copies) {
  CopyOrders orders{true, true};
  const double hottest = std::ranges::max(loads);
  int most_of_hottest = 0;
  for (std::size_t e = 0; e < loads.size(); ++e)
    if (loads[e] == hottest) most_of_hottest = std::max(most_of_hottest, copies[e]);
  for (std::size_t e = 0; e < loads.size(); ++e) {
    orders.hottest_has_most &= copies[e] <= most_of_hottest;
    for (std::size_t other = 0; other < loads.size(); ++other)
      orders.all_in_order &= loads[e] <= loads[other] || copies[e] >= copies[other];
  }
  return orders;
}

CopyOrders orders_within(const ReplicaCase& c, double most) {
  CopyOrders found;
  const std::vector<double> loads(c.loads.begin(), c.loads.begin() + c.num_experts);
  for_all_fillings(c, [&](const std::vector<std::int32_t>& expert_in, const std::vector<int>& copies) {
    if (max_over_mean_of(loads_of_slots(slots_of_ranks(c), expert_in, c.loads)) > most) return;
    const CopyOrders orders = orders_of(loads, copies);
    found.hottest_has_most |= orders.hottest_has_most;
    found.all_in_order |= orders.all_in_order;
  });
  return found;
}

}  // namespace evenkeel
