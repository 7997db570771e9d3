// MoETuner's second program: a rank for every cluster. Exchanges that do not touch each other are solved
// alone; few ranks by a dynamic program over permutations; the rest as one linear program.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "evenkeel/base/error.h"
#include "evenkeel/placement/clusters/clusters.h"
#include "evenkeel/placement/internal/problem_check.h"
#include "evenkeel/placement/internal/program/exchange.h"
#include "evenkeel/placement/internal/program/item_program.h"
#include "evenkeel/placement/internal/program/methods.h"
#include "evenkeel/placement/internal/program/monitor.h"
#include "evenkeel/placement/internal/program/sizes.h"
#include "evenkeel/placement/internal/program/solve.h"
#include "evenkeel/placement/ranks/internal/permutation_search.h"
#include "evenkeel/placement/ranks/internal/rank_bound.h"
#include "evenkeel/placement/ranks/ranks.h"

namespace evenkeel {

namespace exact {
namespace {

constexpr double most_permutation_steps = 2e9;  // some seconds

class RankSolve {
 public:
  RankSolve(const PlacementProblem& problem, const Clustering& clustering, const RankAssignment& start,
            const SolveLimits& limits, const Methods& methods)
      : methods_(methods),
        rule_(size_rule(problem)),
        sizes_(sizes_of(checked(problem, clustering.cluster_of), rule_)),
        exchanges_(cluster_exchanges(problem, clustering.cluster_of)),
        costs_(PairCosts::of_bandwidth(problem.topology, problem.pairs)),
        monitor_(limits) {
    note_what_fits(problem.topology);
    best_ = begin(start);
    bound_ = start.rank_of.empty() ? 0 : start.bound;
    floors_.assign(exchanges_.size(), 0.0);
    if (!sent_from_layer_before()) return;
    const internal::ClusterTraffic traffic(problem, clustering.cluster_of);
    const internal::Deadline deadline(limits, /*least_seconds=*/0.2);
    for (std::size_t i = 0; i < floors_.size(); ++i)
      floors_[i] = internal::exchange_bound(traffic, problem.topology, i, deadline);
  }

  RankAssignment run() {
    bool solved = false;
    if (methods_.alone && every_exchange_alone()) {
      solve_each_alone(/*keep=*/true);
    } else if (methods_.permutations && may_permute() &&
               permutation_steps(rule_.num_ranks, rule_.num_layers) <= most_permutation_steps) {
      const auto found = best_permutations(exchanges_, costs_, may_lie_, monitor_);
      solved = !found.empty();
      if (solved) best_ = found;
    } else {
      solve_each_alone(/*keep=*/false);
      solved = solve_together();
    }
    RankAssignment answer{.rank_of = best_, .objective = objective(best_)};
    answer.bound = std::max(bound_, all_floors());
    answer.program_tried = program_tried_;
    settle(answer, answer.objective, answer.bound, solved);
    return answer;
  }

 private:
  using Clusters = std::vector<std::vector<int>>;

  static const Clusters& checked(const PlacementProblem& problem, const Clusters& cluster_of) {
    internal::require_clusters(problem, cluster_of);
    return cluster_of;
  }

  double all_floors() const { return std::accumulate(floors_.begin(), floors_.end(), 0.0); }

  bool sent_from_layer_before() const { return !exchanges_.empty() && exchanges_.front().from_layer_before; }

  void note_what_fits(const Topology& topology) {
    bool all_sizes_alike = true;
    for (const std::vector<int>& layer : sizes_) {
      auto& of_layer = may_lie_.emplace_back();
      for (int size : layer) {
        auto& of_cluster = of_layer.emplace_back();
        for (RankId rank : indices<RankId>(rule_.num_ranks)) {
          of_cluster.push_back(size <= topology.capacity(rank).value_or(size));
          capacities_bind_ = capacities_bind_ || !of_cluster.back();
        }
        all_sizes_alike = all_sizes_alike && size == sizes_.front().front();
      }
    }
    tied_ = rule_.has_totals() && !all_sizes_alike;
  }

  bool is_feasible(const std::vector<Ranks>& ranks) const {
    std::vector<std::vector<int>> held;
    for (std::size_t layer = 0; layer < ranks.size(); ++layer) {
      auto& of_layer = held.emplace_back(may_lie_[layer].size(), -1);
      for (std::size_t cluster = 0; cluster < ranks[layer].size(); ++cluster) {
        const auto rank = static_cast<std::size_t>(ranks[layer][cluster]);
        if (!may_lie_[layer][cluster][rank]) return false;
        of_layer[rank] = sizes_[layer][cluster];
      }
    }
    return totals_fit(held, rule_);
  }

  void require_shape(const std::vector<Ranks>& ranks) const {
    if (ranks.size() != may_lie_.size())
      throw InvalidArgument("start", fmt::format("has {} layers", ranks.size()),
                            fmt::format("{}, as the profile has", may_lie_.size()));
    for (std::size_t layer = 0; layer < ranks.size(); ++layer) {
      Ranks sorted = ranks[layer];
      std::sort(sorted.begin(), sorted.end());
      Ranks all(may_lie_[layer].size());
      std::iota(all.begin(), all.end(), 0);
      if (sorted != all)
        throw InvalidArgument("start", fmt::format("does not give each rank one cluster in layer {}", layer));
    }
  }

  std::vector<Ranks> begin(const RankAssignment& start) const {
    if (!start.rank_of.empty()) {
      require_shape(start.rank_of);
      if (is_feasible(start.rank_of)) return start.rank_of;
    }
    Ranks identity(static_cast<std::size_t>(rule_.num_ranks));
    std::iota(identity.begin(), identity.end(), 0);
    std::vector<Ranks> ranks(may_lie_.size(), identity);
    if (is_feasible(ranks)) return ranks;
    ranks = ranks_with_equal_totals(sizes_, rule_, monitor_).ranks;
    if (!ranks.empty()) return ranks;
    throw Infeasible(
        rule_.has_totals()
            ? "no ranks for clusters of these sizes give every rank the same total of experts over all "
              "layers (Eq. 13) within its capacity; choose the sizes together"
            : "clusters of these sizes do not fit the ranks' capacity for experts");
  }

  double objective(const std::vector<Ranks>& ranks) const {
    double sum = 0;
    for (const Exchange& exchange : exchanges_) sum += cost(exchange, ranks);
    return sum;
  }
  double cost(const Exchange& exchange, const std::vector<Ranks>& ranks) const {
    const auto layer = static_cast<std::size_t>(exchange.to_layer);
    return cost_of(exchange, costs_, exchange.from_layer_before ? ranks[layer - 1] : ranks[layer],
                   ranks[layer]);
  }

  // With the tokens' own ranks as senders each layer is by itself. From layer to layer, ranks are
  // interchangeable when links are alike: what matters is who stays with whom, and that is free at every
  // step.
  bool every_exchange_alone() const {
    if (tied_) return false;
    return !sent_from_layer_before() || (costs_.all_alike() && !capacities_bind_);
  }

  // Permutations are of exchanges from layer to layer whose sizes do not matter.
  bool may_permute() const { return !tied_ && sent_from_layer_before(); }

  // Solves each exchange without the others, the layer before lying as it may: its clusters are the ranks.
  // Where that is not the whole truth (`keep` is false) all links are as the cheapest one, and what comes out
  // is a bound.
  void solve_each_alone(bool keep) {
    const PairCosts costs = keep || !sent_from_layer_before() ? costs_ : costs_.cheapest();
    if (terms_of_one() > most_terms) {
      program_tried_ = false;
      return;
    }
    for (std::size_t i = 0; i < exchanges_.size() && !monitor_.must_end(); ++i) {
      Exchange alone = exchanges_[i];
      const auto layer = static_cast<std::size_t>(alone.to_layer);
      Ranks given = best_[layer];
      if (alone.from_layer_before) given = relative(given, best_[layer - 1]);
      alone.from_layer_before = false;
      alone.to_layer = 0;
      tell_rest(i);
      const double budget =
          monitor_.seconds_left() / static_cast<double>(exchanges_.size() - i + (keep ? 0 : 1));
      const auto [found, bound] = solve_alone(alone, costs, layer, given, budget);
      floors_[i] = std::max(floors_[i], bound);
      if (keep) place(layer, found);
    }
  }

  // Where clusters lie if the cluster that lies on rank g of the layer before is called g.
  Ranks relative(const Ranks& here, const Ranks& before) const {
    Ranks cluster_on(before.size());
    for (std::size_t cluster = 0; cluster < before.size(); ++cluster)
      cluster_on[static_cast<std::size_t>(before[cluster])] = static_cast<int>(cluster);
    Ranks result;
    for (int rank : here) result.push_back(cluster_on[static_cast<std::size_t>(rank)]);
    return result;
  }

  std::pair<Ranks, double> solve_alone(const Exchange& alone, const PairCosts& costs, std::size_t layer,
                                       const Ranks& given, double seconds) {
    RankProgram program(1, rule_.num_ranks, rule_.num_ranks, Units::of({alone}, costs));
    const bool capacities_count = !sent_from_layer_before();
    for (int rank = 0; rank < rule_.num_ranks; ++rank) {
      program.limit_items(0, rank, 1, 1);
      for (int cluster = 0; cluster < rule_.num_ranks; ++cluster)
        if (capacities_count &&
            !may_lie_[layer][static_cast<std::size_t>(cluster)][static_cast<std::size_t>(rank)])
          program.forbid(0, cluster, rank);
    }
    program.add_exchange(alone, costs, 0);
    const ProgramAnswer answer = program.solve_from({given}, seconds, monitor_);
    const double given_cost = cost_of(alone, costs, {}, given);
    Ranks found = given;
    double found_cost = given_cost;
    if (!answer.values.empty()) {
      const Ranks ranks = program.ranks_of(answer).front();
      const double cost = cost_of(alone, costs, {}, ranks);
      if (cost < given_cost) found = ranks, found_cost = cost;
    }
    const bool proven = answer.end == ProgramAnswer::End::optimal && monitor_.relative_gap() == 0;
    return {found, proven ? found_cost : std::min(found_cost, answer.bound)};
  }

  // Clusters of a layer go where `relative_ranks` says; all later layers move along, so that their exchanges
  // stay.
  void place(std::size_t layer, const Ranks& relative_ranks) {
    if (!sent_from_layer_before()) {
      best_[layer] = relative_ranks;
      return;
    }
    std::vector<Ranks> staying;
    for (std::size_t later = layer + 1; later < best_.size(); ++later)
      staying.push_back(relative(best_[later], best_[later - 1]));
    const auto put = [&](std::size_t at, const Ranks& on_cluster) {
      for (std::size_t cluster = 0; cluster < on_cluster.size(); ++cluster)
        best_[at][cluster] = best_[at - 1][static_cast<std::size_t>(on_cluster[cluster])];
    };
    put(layer, relative_ranks);
    for (std::size_t i = 0; i < staying.size(); ++i) put(layer + 1 + i, staying[i]);
  }

  void tell_rest(std::size_t solving) {
    double others = 0;
    double bounds = 0;
    for (std::size_t i = 0; i < exchanges_.size(); ++i)
      if (i != solving) others += cost(exchanges_[i], best_), bounds += floors_[i];
    monitor_.set_rest(others, bounds);
  }

  // Of the program of one exchange: a row for each pair of ranks, with what every cluster may send there.
  std::int64_t terms_of_one() const {
    const std::int64_t ranks = rule_.num_ranks;
    return ranks * ranks * ranks;
  }

  std::int64_t columns_together() const {
    const std::int64_t ranks = rule_.num_ranks;
    std::int64_t columns = rule_.num_layers * ranks * ranks;
    if (sent_from_layer_before())
      columns += static_cast<std::int64_t>(exchanges_.size()) * ranks * ranks * ranks;
    return columns;
  }

  // True: proven to be the best.
  bool solve_together() {
    if (objective(best_) <= std::max(bound_, all_floors())) return false;
    program_tried_ = program_tried_ && columns_together() <= most_columns;
    if (!program_tried_ || monitor_.must_end()) return false;
    RankProgram program(rule_.num_layers, rule_.num_ranks, rule_.num_ranks, Units::of(exchanges_, costs_));
    for (int layer = 0; layer < rule_.num_layers; ++layer)
      for (int rank = 0; rank < rule_.num_ranks; ++rank) {
        program.limit_items(layer, rank, 1, 1);
        for (int cluster = 0; cluster < rule_.num_ranks; ++cluster)
          if (!may_lie_[static_cast<std::size_t>(layer)][static_cast<std::size_t>(cluster)]
                       [static_cast<std::size_t>(rank)])
            program.forbid(layer, cluster, rank);
      }
    if (tied_) program.limit_totals(sizes_, rule_);
    for (std::size_t i = 0; i < exchanges_.size(); ++i)
      program.add_exchange(exchanges_[i], costs_, floors_[i] * (1 - 1e-6));
    monitor_.set_rest(0, 0);
    const ProgramAnswer answer = program.solve_from(best_, monitor_.seconds_left(), monitor_);
    if (!answer.values.empty()) {
      const std::vector<Ranks> found = program.ranks_of(answer);
      if (objective(found) < objective(best_)) best_ = found;
    }
    bound_ = std::max(bound_, answer.bound);
    return answer.end == ProgramAnswer::End::optimal && monitor_.relative_gap() == 0;
  }

  Methods methods_;
  SizeRule rule_;
  std::vector<std::vector<int>> sizes_;  // [L][cluster]
  std::vector<Exchange> exchanges_;      // between clusters
  PairCosts costs_;
  Monitor monitor_;
  std::vector<std::vector<std::vector<bool>>> may_lie_;  // [L][cluster][rank]: there is space
  bool capacities_bind_ = false;
  bool tied_ = false;  // by Eq. 13
  std::vector<Ranks> best_;
  std::vector<double> floors_;  // of each exchange
  double bound_ = 0;
  bool program_tried_ = true;
};

}  // namespace

RankAssignment assign_ranks(const PlacementProblem& problem, const Clustering& clustering,
                            const RankAssignment& start, const SolveLimits& limits, const Methods& methods) {
  require_solver();
  return RankSolve(problem, clustering, start, limits, methods).run();
}

}  // namespace exact

RankAssignment assign_ranks_exact(const PlacementProblem& problem, const Clustering& clustering,
                                  const RankAssignment& start, const SolveLimits& limits) {
  return exact::assign_ranks(problem, clustering, start, limits, {});
}

}  // namespace evenkeel
