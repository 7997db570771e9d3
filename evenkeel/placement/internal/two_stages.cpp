#include "evenkeel/placement/internal/two_stages.h"

#include <algorithm>
#include <utility>

#include "evenkeel/placement/clusters/clusters.h"
#include "evenkeel/placement/internal/place_options.h"
#include "evenkeel/placement/internal/proof.h"
#include "evenkeel/placement/ranks/ranks.h"
#include "evenkeel/placement/traffic.h"

namespace evenkeel::internal {

namespace {

class TwoStages {
 public:
  TwoStages(const PlacementProblem& problem, const PlaceOptions& options, const Deadline& deadline)
      : problem_(problem), options_(options), deadline_(deadline) {}

  PlaceResult run() const {
    Stages stages{.clusters = cluster_fast(problem_, limits(exact() ? 4 : 2)), .ranks = {}};
    const double begin = deadline_.seconds();
    stages.ranks = fast_ranks(stages.clusters, limits(exact() ? 3 : 1));
    stages.rank_seconds = deadline_.seconds() - begin;
    if (exact()) solve_exactly(stages);
    const auto& [clusters, ranks, seconds] = stages;
    PlaceResult solved{.placement = placement_of(clusters, ranks, problem_.topology.num_ranks()),
                       .solver = options_.solver};
    const double balance = balance_objective(problem_, solved.placement);
    add_objective(solved, "balance", balance, clusters.proven_optimal ? balance : clusters.bound,
                  balance_bound_of(clusters));
    solved.ended_by_time = clusters.ended_by_time;
    if (by_balance()) return solved;
    const double traffic = pair_objective(problem_, solved.placement);
    add_objective(solved, "traffic", traffic, reported_bound(traffic, ranks.bound),
                  "all ways to assign ranks to these clusters of experts");
    note_programs(clusters, ranks, solved.notes);
    return solved;
  }

 private:
  bool exact() const { return options_.solver == PlaceOptions::Solver::exact; }
  SolveLimits limits_of(double seconds) const { return limits_of_stage(options_.limits, deadline_, seconds); }
  // Limits of the next stage: its equal share if `stages_left` stages divide the time left.
  SolveLimits limits(int stages_left = 1) const { return limits_of(deadline_.seconds_left() / stages_left); }

  // The answers of the two programs, and the seconds spent on ranks.
  struct Stages {
    Clustering clusters;
    RankAssignment ranks;
    double rank_seconds = 0;
  };

  bool by_balance() const { return traffic_is_unknown(problem_.profile, problem_.traffic); }

  // If ranks were solved quickly for the current clusters, they need little more time. Otherwise ranks get
  // half of the time, plus what clusters leave.
  void solve_exactly(Stages& stages) const {
    if (!stages.clusters.proven_optimal && !need_no_more(stages.ranks)) try_ranks(stages);
    const double left = deadline_.seconds_left();
    const double for_ranks =
        need_no_more(stages.ranks) ? std::min(2 * stages.rank_seconds, left / 2) : left / 2;
    take(stages, cluster_exact(problem_, stages.clusters, limits_of(left - for_ranks)));
    if (!by_balance()) stages.ranks = assign_ranks_exact(problem_, stages.clusters, stages.ranks, limits());
    const bool time_is_left = deadline_.seconds_left() > options_.limits.time_limit_s / 4;
    if (stages.clusters.ended_by_time && need_no_more(stages.ranks) && time_is_left) solve_exactly(stages);
  }

  // Even if the new clusters are no better, they may differ from the old ones, and then ranks may send more
  // or less.
  void take(Stages& stages, Clustering found) const {
    if (found.cluster_of != stages.clusters.cluster_of) {
      // A step of the integer program may have used the time reserved for ranks.
      const double seconds = std::max(deadline_.seconds_left(), 2 * stages.rank_seconds);
      RankAssignment ranks = fast_ranks(found, limits_of(seconds));
      if (found.objective < stages.clusters.objective || ranks.objective < stages.ranks.objective)
        stages.ranks = std::move(ranks);
      else
        found.cluster_of = stages.clusters.cluster_of;
    }
    stages.clusters = std::move(found);
  }

  bool need_no_more(const RankAssignment& ranks) const {
    return by_balance() || is_within_gap(ranks.objective, ranks.bound, options_.limits.relative_gap);
  }

  // Solves ranks with a tenth of the time left.
  void try_ranks(Stages& stages) const {
    constexpr int part = 10;
    const double begin = deadline_.seconds();
    stages.ranks = assign_ranks_exact(problem_, stages.clusters, stages.ranks, limits(part));
    stages.rank_seconds += deadline_.seconds() - begin;
  }

  RankAssignment fast_ranks(const Clustering& clusters, const SolveLimits& limits) const {
    return by_balance() ? assign_ranks_by_load(problem_, clusters, limits)
                        : assign_ranks_fast(problem_, clusters, limits);
  }

  static void note_programs(const Clustering& clusters, const RankAssignment& ranks,
                            std::vector<std::string>& notes) {
    if (clusters.sizes_chosen_together)
      notes.emplace_back(
          "the best sizes of each layer alone would give ranks unequal totals (Eq. 13), so sizes of all "
          "layers were chosen together");
    if (!clusters.layers_tried)
      notes.emplace_back(
          "solver exact: the program of a layer has too many variables and was not tried; clusters are the "
          "fast solver's");
    else if (!clusters.program_tried)
      notes.emplace_back(
          "solver exact solved each layer alone: the program of all layers has too many variables; sizes "
          "with equal totals (Eq. 13) are the fast solver's");
    if (!ranks.program_tried)
      notes.emplace_back(
          "solver exact: the program of ranks has too many variables and was not tried; ranks are the fast "
          "solver's");
  }

  std::string balance_bound_of(const Clustering& clusters) const {
    if (problem_.sizes == ClusterSizes::equal)
      return "all placements with as many experts on each rank, rounded up or down";
    const std::string each = "all placements with an expert or more on each rank in each layer";
    if (clusters.bound_has_totals || clusters.proven_optimal)
      return each + ", and as many on each rank over all layers (Eq. 13)";
    return each + ", whether or not each rank has as many over all layers (Eq. 13)";
  }

  const PlacementProblem& problem_;
  const PlaceOptions& options_;
  const Deadline& deadline_;
};

}  // namespace

PlaceResult place_in_two_stages(const PlacementProblem& problem, const PlaceOptions& options,
                                const Deadline& deadline) {
  return TwoStages(problem, options, deadline).run();
}

SolveLimits limits_of_stage(const SolveLimits& all, const Deadline& deadline, double seconds) {
  SolveLimits limits = all;
  const double spent = deadline.seconds();
  limits.time_limit_s = seconds;
  if (limits.progress)
    limits.progress = [&tell = all.progress, spent](double objective, double bound, double seconds_of_stage) {
      tell(objective, bound, spent + seconds_of_stage);
    };
  return limits;
}

// A bound above the objective is lowered to it.
void add_objective(PlaceResult& solved, const std::string& name, double objective, double bound,
                   std::string bound_of) {
  solved.objective[name] = objective;
  solved.bound[name] = std::min(bound, objective);
  solved.bound_of[name] = std::move(bound_of);
}

}  // namespace evenkeel::internal
