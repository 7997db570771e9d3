// MoETuner's first program: solved layer by layer, or all layers together where free sizes would give ranks
// unequal totals.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "evenkeel/base/error.h"
#include "evenkeel/placement/clusters/clusters.h"
#include "evenkeel/placement/clusters/internal/cluster_program.h"
#include "evenkeel/placement/clusters/internal/exact_partition.h"
#include "evenkeel/placement/clusters/internal/partition.h"
#include "evenkeel/placement/internal/problem_check.h"
#include "evenkeel/placement/internal/program/methods.h"
#include "evenkeel/placement/internal/program/rank_program.h"
#include "evenkeel/placement/internal/rank_rule.h"
#include "evenkeel/placement/internal/shared_time.h"

namespace evenkeel {

namespace internal {
namespace {

constexpr double most_subset_steps = 1e9;  // take some seconds
constexpr int most_subset_experts = 22;    // need 2^22 numbers per cluster

class ClusterSolve {
 public:
  ClusterSolve(const PlacementProblem& problem, const Clustering& start, const SolveLimits& limits,
               const Methods& methods)
      : problem_(problem),
        rule_(size_rule(problem)),
        start_(start),
        deadline_(limits),
        by_subsets_(methods.subsets && rule_.num_experts <= most_subset_experts &&
                    subset_steps(rule_) <= most_subset_steps) {
    if (!start.cluster_of.empty()) require_clusters(problem, start.cluster_of);
    const Layers own = contiguous_clusters(rule_);
    for (int layer = 0; layer < rule_.num_layers; ++layer)
      layers_.push_back(begin(layer, own[static_cast<std::size_t>(layer)]));
  }

  Clustering run() {
    // With free sizes, keep half of the time for making each rank's sizes add up to its total.
    solve_layers(rule_.has_totals() ? deadline_.seconds_left() / 2 : deadline_.seconds_left());
    if (!rule_.has_totals()) return answer();
    Named alone = named_by_rank(clusters());
    if (alone.clusters.empty()) return solve_together(alone.impossible);
    take(alone.clusters);
    if (ended_by_time_) solve_on(alone.clusters);
    Clustering clustering = answer();
    const bool each_is_best = total_deviation() <= total_bound();
    clustering.sizes_chosen_together = start_.sizes_chosen_together && !each_is_best;
    return clustering;
  }

 private:
  using Layers = std::vector<std::vector<int>>;  // [L][E] cluster of each expert

  std::span<const std::int64_t> loads(int layer) const { return problem_.profile.loads(LayerId(layer)); }

  ExactPartition begin(int layer, const std::vector<int>& own) const {
    const PartitionTask task{
        .loads = loads(layer), .least = rule_.in_layer.least, .most = rule_.in_layer.most};
    ExactPartition partition{.cluster_of = own, .bound = static_cast<double>(deviation_bound(task))};
    partition.deviation = deviation_of(loads(layer), own, rule_.num_ranks);
    if (start_.cluster_of.empty()) return partition;
    const auto sizes = sizes_of(start_.cluster_of, rule_.num_ranks)[static_cast<std::size_t>(layer)];
    const std::vector<int> name = fit_to_ranks(sizes, rule_);
    if (name.empty()) return partition;
    std::vector<int> given = start_.cluster_of[static_cast<std::size_t>(layer)];
    for (int& cluster : given) cluster = name[static_cast<std::size_t>(cluster)];
    const double deviation = deviation_of(loads(layer), given, rule_.num_ranks);
    if (deviation > partition.deviation) return partition;
    partition.cluster_of = std::move(given);
    partition.deviation = deviation;
    return partition;
  }

  void solve_layers(double seconds) {
    std::vector<OpenPart> open;
    for (std::size_t layer = 0; layer < layers_.size(); ++layer)
      if (layers_[layer].bound < layers_[layer].deviation) open.push_back({layer});
    layers_tried_ = open.empty() || by_subsets_ || program_of_layer_is_small();
    if (!layers_tried_) return;
    open = solve_in_rounds(
        std::move(open), seconds, deadline_,
        [&](std::size_t layer, double share) { return solve_layer(static_cast<int>(layer), share); },
        [&] { return deadline_.close_enough(total_deviation(), known_bound()); });
    ended_by_time_ = !open.empty() && !deadline_.stop_requested();
  }

  // Returns true if the solver ended by itself, false if time cut it off.
  bool solve_layer(int layer, double seconds) {
    ExactPartition& partition = layers_[static_cast<std::size_t>(layer)];
    deadline_.set_rest((total_deviation() - partition.deviation) / rule_.num_ranks,
                       (total_bound() - partition.bound) / rule_.num_ranks);
    const bool ended = by_subsets_ ? partition_by_subsets(loads(layer), rule_, deadline_, partition)
                                   : partition_by_program(loads(layer), rule_, seconds, deadline_, partition);
    deadline_.report(partition.deviation / rule_.num_ranks, partition.bound / rule_.num_ranks);
    return ended;
  }

  // Totals took less time than was reserved, so layers are solved further. Keeps `named` if the new result
  // cannot meet the totals.
  void solve_on(const Layers& named) {
    solve_layers(deadline_.seconds_left());
    Named again = named_by_rank(clusters());
    take(again.clusters.empty() ? named : again.clusters);
  }

  // Symmetry breaking adds a row for each expert and rank, with a term for every earlier expert.
  bool program_of_layer_is_small() const {
    const std::int64_t experts = rule_.num_experts;
    const std::int64_t columns = rule_.num_ranks * (experts + 1);
    return columns <= most_columns && columns * experts / 2 <= most_terms;
  }

  double total(double ExactPartition::*figure) const {
    double sum = 0;
    for (const ExactPartition& layer : layers_) sum += layer.*figure;
    return sum;
  }
  double total_deviation() const { return total(&ExactPartition::deviation); }
  double total_bound() const { return total(&ExactPartition::bound); }

  Layers clusters() const {
    Layers all;
    for (const ExactPartition& layer : layers_) all.push_back(layer.cluster_of);
    return all;
  }

  double deviation_of_all(const Layers& clusters) const {
    double sum = 0;
    for (int layer = 0; layer < rule_.num_layers; ++layer)
      sum += deviation_of(loads(layer), clusters[static_cast<std::size_t>(layer)], rule_.num_ranks);
    return sum;
  }

  void take(const Layers& clusters) {
    for (int layer = 0; layer < rule_.num_layers; ++layer) {
      ExactPartition& partition = layers_[static_cast<std::size_t>(layer)];
      partition.cluster_of = clusters[static_cast<std::size_t>(layer)];
      partition.deviation = deviation_of(loads(layer), partition.cluster_of, rule_.num_ranks);
    }
  }

  struct Named {
    Layers clusters;  // empty: no numbering was found
    bool impossible = false;
  };

  // Numbers clusters so that cluster c of every layer is on rank c, and capacities and Eq. 13 hold.
  Named named_by_rank(Layers clusters) const {
    const std::vector<Sizes> sizes = sizes_of(clusters, rule_.num_ranks);
    if (sizes_fit_ranks(sizes, rule_)) return {std::move(clusters)};
    for (const Sizes& of_layer : sizes)
      if (fit_to_ranks(of_layer, rule_).empty()) return {.clusters = {}, .impossible = true};
    RanksFound found;
    if (auto soon = RankRule(rule_, sizes).find())
      found.ranks = *std::move(soon);
    else
      found = ranks_with_equal_totals(sizes, rule_, deadline_);
    if (found.ranks.empty()) return {.clusters = {}, .impossible = found.impossible};
    for (std::size_t layer = 0; layer < clusters.size(); ++layer)
      for (int& cluster : clusters[layer]) cluster = found.ranks[layer][static_cast<std::size_t>(cluster)];
    return {std::move(clusters)};
  }

  // The better of the caller's start and contiguous clusters, among those that satisfy Eq. 13.
  Layers known_with_totals() const {
    Layers best;
    if (!start_.cluster_of.empty()) best = named_by_rank(start_.cluster_of).clusters;
    Layers own = contiguous_clusters(rule_);
    if (!sizes_fit_ranks(sizes_of(own, rule_.num_ranks), rule_)) return best;
    if (best.empty() || deviation_of_all(own) < deviation_of_all(best)) return own;
    return best;
  }

  // `needed`: true if the sizes chosen layer by layer cannot meet Eq. 13; false if time ran out before that
  // was known.
  Clustering solve_together(bool needed) {
    Layers best = known_with_totals();
    ProgramAnswer found{.values = {}, .bound = 0};
    const std::int64_t columns =
        std::int64_t{rule_.num_layers} * rule_.num_ranks * (std::int64_t{rule_.num_experts} + 1);
    const bool is_met =
        !best.empty() && deadline_.close_enough(deviation_of_all(best),
                                                std::max(total_bound(), given_bound() * rule_.num_ranks));
    if (!is_met && !deadline_.passed() && columns <= most_columns) {
      const ClusterProgram program = program_of_all();
      deadline_.set_rest(0, 0);
      found = program.solve_from(best, deadline_.seconds_left(), deadline_);
      const Layers other = found.values.empty() ? Layers{} : program.clusters_of(found.values);
      if (!other.empty() && (best.empty() || deviation_of_all(other) < deviation_of_all(best))) best = other;
    }
    if (best.empty()) refuse(found, columns);
    take(best);
    ended_by_time_ = !is_met && columns <= most_columns && found.end == ProgramAnswer::End::interrupted &&
                     !deadline_.stop_requested();
    Clustering clustering = answer();
    clustering.sizes_chosen_together = needed || start_.sizes_chosen_together;
    clustering.program_tried = columns <= most_columns;
    const double bound = whole_bound(found.bound) / rule_.num_ranks;
    if (bound > clustering.bound) {
      clustering.bound = bound;
      clustering.bound_has_totals = true;
    }
    const bool proven = found.proves_optimum(deadline_);
    clustering.bound_has_totals = clustering.bound_has_totals || proven;
    conclude_whole(clustering, proven);
    return clustering;
  }

  ClusterProgram program_of_all() const {
    std::vector<std::span<const std::int64_t>> all_loads;
    std::vector<double> floors;
    for (int layer = 0; layer < rule_.num_layers; ++layer) {
      all_loads.push_back(loads(layer));
      floors.push_back(layers_[static_cast<std::size_t>(layer)].bound);
    }
    return ClusterProgram(all_loads, rule_, /*has_total_constraints=*/true, floors);
  }

  [[noreturn]] static void refuse(const ProgramAnswer& found, std::int64_t columns) {
    if (found.end == ProgramAnswer::End::infeasible)
      throw Infeasible(
          "no cluster sizes within the ranks' capacities give every rank the same number of experts over "
          "all layers (Eq. 13); raise the capacities, or use sizes equal");
    if (columns > most_columns)
      throw Unsupported(
          fmt::format("solver exact makes a program of {} variables for all layers, above the limit of {}; "
                      "use solver fast or sizes equal",
                      columns, most_columns));
    throw Infeasible(
        "no cluster sizes that give every rank the same number of experts over all layers (Eq. 13) were "
        "found in time; raise the time limit");
  }

  // The bound that the caller has proven; 0 if none.
  double given_bound() const { return start_.cluster_of.empty() ? 0 : start_.bound; }

  // A bound for layers that are solved one by one. With free sizes it leaves out the caller's bound, which
  // may hold only for all layers together.
  double known_bound() const {
    return rule_.has_totals() ? total_bound() : std::max(total_bound(), given_bound() * rule_.num_ranks);
  }

  Clustering answer() const {
    Clustering clustering{.cluster_of = clusters(),
                          .objective = total_deviation() / rule_.num_ranks,
                          .bound = total_bound() / rule_.num_ranks,
                          .ended_by_time = ended_by_time_,
                          .layers_tried = layers_tried_};
    if (given_bound() > clustering.bound) {
      clustering.bound = given_bound();
      clustering.bound_has_totals = start_.bound_has_totals;
    }
    conclude_whole(clustering, false);
    return clustering;
  }

  // P times the objective and P times the bound are whole numbers; a difference below 1 is rounding.
  void conclude_whole(Clustering& clustering, bool solved_to_the_end) const {
    const bool same = (clustering.objective - clustering.bound) * rule_.num_ranks < 0.5;
    if (same || solved_to_the_end) clustering.bound = clustering.objective;
    clustering.proven_optimal = clustering.bound == clustering.objective;
    clustering.ended_by_time = clustering.ended_by_time && !clustering.proven_optimal;
  }

  const PlacementProblem& problem_;
  SizeRule rule_;
  const Clustering& start_;
  Deadline deadline_;
  bool by_subsets_ = true;
  bool layers_tried_ = true;
  bool ended_by_time_ = false;
  std::vector<ExactPartition> layers_;
};

}  // namespace

Clustering cluster_exact(const PlacementProblem& problem, const Clustering& start, const SolveLimits& limits,
                         const Methods& methods) {
  require_solver();
  return ClusterSolve(problem, start, limits, methods).run();
}

}  // namespace internal

Clustering cluster_exact(const PlacementProblem& problem, const Clustering& start,
                         const SolveLimits& limits) {
  return internal::cluster_exact(problem, start, limits, {});
}

}  // namespace evenkeel
