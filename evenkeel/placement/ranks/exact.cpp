// MoETuner's second program: a rank for every cluster. Independent exchanges are solved one by one; few ranks
// by a dynamic program over permutations; the rest as one linear program.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "evenkeel/base/error.h"
#include "evenkeel/placement/internal/deadline.h"
#include "evenkeel/placement/internal/problem_check.h"
#include "evenkeel/placement/internal/program/exchange.h"
#include "evenkeel/placement/internal/program/methods.h"
#include "evenkeel/placement/internal/program/rank_program.h"
#include "evenkeel/placement/internal/rank_rule.h"
#include "evenkeel/placement/ranks/internal/methods.h"
#include "evenkeel/placement/ranks/ranks.h"

namespace evenkeel {

namespace internal {
namespace {

constexpr double most_permutation_steps = 2e9;  // take some seconds

// Eq. 8 from layer to layer, one cluster on each rank; costs are added in the order of clusters.
double cost_of_clusters(const Exchange& exchange, const PairCosts& costs, const Ranks& before,
                        const Ranks& here) {
  double worst = 0;
  double total = 0;
  for (std::size_t sender = 0; sender < costs.num_ranks; ++sender) {
    const std::size_t row = static_cast<std::size_t>(before[sender]) * costs.num_ranks;
    for (std::size_t item = 0; item < costs.num_ranks; ++item) {
      // One pair of clusters for each pair of ranks; traffic within a rank costs nothing.
      const double cost =
          costs.per_unit[row + static_cast<std::size_t>(here[item])] * exchange.amount(sender, item);
      worst = std::max(worst, cost);
      total += cost;
    }
  }
  return costs.objective == PairObjective::worst_pair ? worst : total;
}

class RankSolve {
 public:
  RankSolve(const PlacementProblem& problem, const Clustering& clustering, const RankAssignment& start,
            const SolveLimits& limits, const Methods& methods)
      : methods_(methods),
        sizes_rule_(size_rule(problem)),
        sizes_(sizes_of(checked(problem, clustering.cluster_of), sizes_rule_.num_ranks)),
        rule_(sizes_rule_, sizes_),
        layer_to_layer_(problem.traffic == TrafficModel::layer_to_layer && problem.profile.num_layers() > 1),
        costs_(PairCosts::of_bandwidth(problem.topology, problem.pairs)),
        deadline_(limits) {
    const ClusterTraffic traffic(problem, clustering.cluster_of);
    const std::size_t ranks = costs_.num_ranks;
    for (std::size_t i = 0; i < traffic.num_exchanges(); ++i)
      exchanges_.push_back({.to_layer = static_cast<int>(i) + (layer_to_layer_ ? 1 : 0),
                            .from_layer_before = layer_to_layer_,
                            .num_senders = ranks,
                            .num_items = ranks,
                            .amounts = traffic.traffic(i)});
    const int size = sizes_.front().front();
    has_total_constraints_ = rule_.has_totals() && !std::ranges::all_of(sizes_, [&](const Sizes& of_layer) {
                               return std::ranges::all_of(of_layer, [&](int each) { return each == size; });
                             });
    best_ = begin(start);
    bound_ = start.rank_of.empty() ? 0 : start.bound;
    floors_.assign(exchanges_.size(), 0.0);
    if (!layer_to_layer_) return;
    const Deadline for_bounds(limits, /*least_seconds=*/0.2);
    for (std::size_t i = 0; i < floors_.size(); ++i) floors_[i] = exchange_bound(traffic, i, for_bounds);
  }

  RankAssignment run() {
    const bool solved = solve();
    RankAssignment answer{.rank_of = best_, .objective = objective(best_)};
    answer.bound = std::max(bound_, all_floors());
    answer.program_tried = program_tried_;
    conclude(answer, answer.objective, answer.bound, solved);
    return answer;
  }

 private:
  using Clusters = std::vector<std::vector<int>>;

  static const Clusters& checked(const PlacementProblem& problem, const Clusters& cluster_of) {
    require_clusters(problem, cluster_of);
    require_traffic(problem);
    return cluster_of;
  }

  // True: proven optimal. False: the caller compares objective and bound.
  bool solve() {
    if (is_close_enough()) return false;
    if (methods_.alone && every_exchange_alone()) {
      solve_each_alone(/*keep=*/true);
      return false;
    }
    if (!methods_.permutations || !may_permute()) {
      solve_each_alone(/*keep=*/false);
      return solve_together();
    }
    const auto found = best_permutations(
        rule_, costs_.num_ranks,
        [&](std::size_t exchange, const Ranks& senders, const Ranks& receivers) {
          return cost_of_clusters(exchanges_[exchange], costs_, senders, receivers);
        },
        deadline_);
    if (found.empty()) return false;
    best_ = found;
    return true;
  }

  bool is_close_enough() const {
    return deadline_.close_enough(objective(best_), std::max(bound_, all_floors()));
  }
  double all_floors() const { return std::accumulate(floors_.begin(), floors_.end(), 0.0); }

  void require_shape(const std::vector<Ranks>& ranks) const {
    if (ranks.size() != sizes_.size())
      throw InvalidArgument("start", fmt::format("has {} layers", ranks.size()),
                            fmt::format("{}, as the profile has", sizes_.size()));
    for (std::size_t layer = 0; layer < ranks.size(); ++layer) {
      Ranks sorted = ranks[layer];
      std::ranges::sort(sorted);
      if (sorted != in_order(costs_.num_ranks))
        throw InvalidArgument("start", fmt::format("does not give each rank one cluster in layer {}", layer));
    }
  }

  std::vector<Ranks> begin(const RankAssignment& start) const {
    if (!start.rank_of.empty()) {
      require_shape(start.rank_of);
      if (rule_.holds(start.rank_of)) return start.rank_of;
    }
    std::vector<Ranks> ranks = rule_.as_named();
    if (rule_.holds(ranks)) return ranks;
    ranks = ranks_with_equal_totals(sizes_, sizes_rule_, deadline_).ranks;
    if (!ranks.empty()) return ranks;
    throw Infeasible(rule_.has_totals()
                         ? "clusters of these sizes cannot be assigned so that every rank has the same "
                           "number of experts over all layers (Eq. 13) within its capacity; choose the sizes "
                           "together"
                         : "clusters of these sizes do not fit the ranks' capacities; raise these");
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

  // Under dispatch_combine the senders are the tokens' own ranks, so layers are independent. From layer to
  // layer, ranks are interchangeable if all links are alike. Then only the pairing of clusters on a rank
  // matters, and each exchange can choose it freely.
  bool every_exchange_alone() const {
    if (has_total_constraints_) return false;
    return !layer_to_layer_ || (costs_.all_alike() && rule_.fits_everywhere());
  }

  // Permutations solve only exchanges from layer to layer that sizes do not restrict.
  bool may_permute() const {
    return !has_total_constraints_ && layer_to_layer_ &&
           permutation_steps(sizes_rule_.num_ranks, sizes_rule_.num_layers) <= most_permutation_steps;
  }

  // Solves each exchange independently, with the clusters of the layer before as its ranks. With `keep` the
  // answers are kept. Without it they only give a bound, for which all links cost as little as the cheapest.
  void solve_each_alone(bool keep) {
    const PairCosts costs = keep || !layer_to_layer_ ? costs_ : costs_.cheapest();
    // The program of one exchange has a row for each pair of ranks, with the possible traffic of every
    // cluster.
    const std::int64_t ranks = sizes_rule_.num_ranks;
    if (ranks * ranks * ranks > most_terms) {
      program_tried_ = false;
      return;
    }
    for (std::size_t i = 0; i < exchanges_.size() && !deadline_.passed(); ++i) {
      Exchange alone = exchanges_[i];
      const auto layer = static_cast<std::size_t>(alone.to_layer);
      Ranks given = best_[layer];
      if (alone.from_layer_before) given = relative(given, best_[layer - 1]);
      alone.from_layer_before = false;
      alone.to_layer = 0;
      tell_rest(i);
      const double budget =
          deadline_.seconds_left() / static_cast<double>(exchanges_.size() - i + (keep ? 0 : 1));
      const auto [found, bound] = solve_alone(alone, costs, layer, given, budget);
      floors_[i] = std::max(floors_[i], bound);
      if (keep) place(layer, found);
    }
  }

  // Renumbers the ranks in `here` by the layer before: each rank becomes the number of the cluster that the
  // layer before has on it.
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
    RankProgram program(1, sizes_rule_.num_ranks, sizes_rule_.num_ranks, Units::of({alone}, costs));
    program.give_each_rank_one(0, [&](std::size_t cluster, std::size_t rank) {
      return layer_to_layer_ || rule_.fits(layer, cluster, rank);
    });
    program.add_exchange(alone, costs, 0);
    const ProgramAnswer answer = program.solve_from({given}, seconds, deadline_);
    const double given_cost = cost_of(alone, costs, {}, given);
    Ranks found = given;
    double found_cost = given_cost;
    if (!answer.values.empty()) {
      const Ranks ranks = program.ranks_of(answer).front();
      const double cost = cost_of(alone, costs, {}, ranks);
      if (cost < given_cost) found = ranks, found_cost = cost;
    }
    const bool proven = answer.proves_optimum(deadline_);
    return {found, proven ? found_cost : std::min(found_cost, answer.bound)};
  }

  // Puts clusters of a layer where `relative_ranks` says. All later layers move along, so that their
  // exchanges keep their cost.
  void place(std::size_t layer, const Ranks& relative_ranks) {
    if (!layer_to_layer_) {
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
    deadline_.set_rest(others, bounds);
  }

  std::int64_t columns_together() const {
    const std::int64_t ranks = sizes_rule_.num_ranks;
    std::int64_t columns = sizes_rule_.num_layers * ranks * ranks;
    if (layer_to_layer_) columns += static_cast<std::int64_t>(exchanges_.size()) * ranks * ranks * ranks;
    return columns;
  }

  // True: proven optimal.
  bool solve_together() {
    if (is_close_enough()) return false;
    program_tried_ = program_tried_ && columns_together() <= most_columns;
    if (!program_tried_ || deadline_.passed()) return false;
    RankProgram program(sizes_rule_.num_layers, sizes_rule_.num_ranks, sizes_rule_.num_ranks,
                        Units::of(exchanges_, costs_));
    for (int layer = 0; layer < sizes_rule_.num_layers; ++layer)
      program.give_each_rank_one(layer, [&](std::size_t cluster, std::size_t rank) {
        return rule_.fits(static_cast<std::size_t>(layer), cluster, rank);
      });
    if (has_total_constraints_) program.limit_totals(sizes_, sizes_rule_);
    for (std::size_t i = 0; i < exchanges_.size(); ++i)
      program.add_exchange(exchanges_[i], costs_, floors_[i] * (1 - 1e-6));
    deadline_.set_rest(0, 0);
    const ProgramAnswer answer = program.solve_from(best_, deadline_.seconds_left(), deadline_);
    if (!answer.values.empty()) {
      const std::vector<Ranks> found = program.ranks_of(answer);
      if (objective(found) < objective(best_)) best_ = found;
    }
    bound_ = std::max(bound_, answer.bound);
    return answer.proves_optimum(deadline_);
  }

  Methods methods_;
  SizeRule sizes_rule_;
  std::vector<Sizes> sizes_;  // [L]
  RankRule rule_;
  bool layer_to_layer_;  // false: traffic is from the tokens' own ranks, or there are no exchanges
  PairCosts costs_;
  Deadline deadline_;
  std::vector<Exchange> exchanges_;     // between clusters
  bool has_total_constraints_ = false;  // Eq. 13 restricts the ranks
  std::vector<Ranks> best_;
  std::vector<double> floors_;  // lower bound of each exchange
  double bound_ = 0;
  bool program_tried_ = true;
};

}  // namespace

RankAssignment assign_ranks_exact(const PlacementProblem& problem, const Clustering& clustering,
                                  const RankAssignment& start, const SolveLimits& limits,
                                  const Methods& methods) {
  require_solver();
  return RankSolve(problem, clustering, start, limits, methods).run();
}

}  // namespace internal

RankAssignment assign_ranks_exact(const PlacementProblem& problem, const Clustering& clustering,
                                  const RankAssignment& start, const SolveLimits& limits) {
  return internal::assign_ranks_exact(problem, clustering, start, limits, {});
}

}  // namespace evenkeel
