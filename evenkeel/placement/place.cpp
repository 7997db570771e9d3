#include "evenkeel/placement/place.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "evenkeel/base/error.h"
#include "evenkeel/placement/as_served.h"
#include "evenkeel/placement/evaluate/evaluate.h"
#include "evenkeel/placement/incremental/copies.h"
#include "evenkeel/placement/internal/deadline.h"
#include "evenkeel/placement/internal/place_options.h"
#include "evenkeel/placement/internal/proof.h"
#include "evenkeel/placement/internal/two_stages.h"
#include "evenkeel/placement/joint/joint.h"
#include "evenkeel/placement/ranks/ranks.h"
#include "evenkeel/placement/replicas/every_node.h"
#include "evenkeel/placement/replicas/replicas.h"
#include "evenkeel/placement/robust/robust.h"
#include "evenkeel/placement/traffic.h"
#include "evenkeel/placement/whole_groups.h"

namespace evenkeel {

namespace {

LayerNumbers numbers_of(const RoutingProfile& profile, const PlaceOptions& options) {
  return profile.layers().known() || !options.from ? profile.layers() : options.from->layers();
}

// The answers of the solvers, without the qualities before and after.
class Solve {
 public:
  // `recordings` add up to the problem's profile; if there are several, each one counts.
  Solve(const PlacementProblem& problem, std::span<const RoutingProfile> recordings,
        const PlaceOptions& options, const internal::Deadline& deadline)
      : problem_(problem), recordings_(recordings), options_(options), deadline_(deadline) {}

  PlaceResult run() const {
    PlaceResult solved = by_problem();
    const std::vector<double>& speeds = problem_.topology.description().speeds;
    const bool by_speed =
        is_joint() || (recordings_.size() == 1 && !internal::has_replicas(options_) && !options_.from);
    if (!by_speed && std::ranges::adjacent_find(speeds, std::not_equal_to{}) != speeds.end())
      solved.notes.emplace_back(
          "experts are placed as if all ranks were equally fast, but max/mean before and after is by speed");
    return solved;
  }

 private:
  PlaceResult by_problem() const {
    if (options_.from)
      return is_served_evenly() ? with_move_notes(incrementally(grouped())) : incrementally_as_served();
    if (options_.redundant_experts > 0) return is_joint() ? copies_jointly() : with_copies();
    if (recordings_.size() > 1) return across_recordings(options_.num_groups);
    if (grouped()) return with_replicas(options_.num_groups);
    if (is_joint()) return jointly();
    return internal::place_in_two_stages(problem_, options_, deadline_);
  }

  bool is_joint() const { return options_.objective == PlaceOptions::Objective::joint; }
  bool exact() const { return options_.solver == PlaceOptions::Solver::exact; }
  SolveLimits limits(int stages_left = 1) const {
    return internal::limits_of_stage(options_.limits, deadline_, deadline_.seconds_left() / stages_left);
  }

  PlaceResult jointly() const {
    JointSolution joint = place_jointly_fast(problem_, limits(exact() ? 2 : 1));
    if (exact()) joint = place_jointly_exact(problem_, joint, limits());
    PlaceResult solved{.placement = placement_of(joint.rank_of_expert, problem_.topology.num_ranks())};
    const double ms = joint_objective_ms(problem_, solved.placement);
    internal::add_objective(solved, "joint_ms", ms,
                            joint.proven_optimal ? ms : internal::reported_bound(ms, joint.bound_ms),
                            "all placements with these sizes");
    solved.ended_by_time = joint.ended_by_time;
    if (joint.program_tried)
      solved.solver = options_.solver;
    else
      solved.notes.emplace_back(
          "solver exact: the joint program has too many variables and was not tried; homes and bound are the "
          "fast solver's");
    return solved;
  }

  // Places copies by balance, and renames ranks to send least; joint continues from there.
  PlaceResult copies_jointly() const {
    const std::vector<double> all = loads();
    ReplicaProblem problem = replica_problem(all, /*num_groups=*/1);
    problem.limits = limits(/*stages_left=*/2);
    require_distinct_experts(problem);
    const ReplicaSolution replicas = replicate(problem);
    const Placement start = with_renamed_ranks(replicas, /*nodes_stay_together=*/false, limits(2));
    JointPlacement joint = place_copies_jointly(problem_, start, replicas.bound, limits());
    PlaceResult solved{.placement = std::move(joint.placement)};
    const double ms = joint_objective_ms(problem_, solved.placement);
    internal::add_objective(solved, "joint_ms", ms, internal::reported_bound(ms, joint.bound_ms),
                            "all ways to copy and place");
    return solved;
  }

  bool grouped() const { return options_.num_groups > 1; }
  // [W, L, E]
  std::vector<double> loads() const {
    std::vector<double> all;
    for (const RoutingProfile& recording : recordings_)
      all.insert(all.end(), recording.loads().begin(), recording.loads().end());
    return all;
  }

  ReplicaProblem replica_problem(std::span<const double> loads, int num_groups) const {
    return {.num_layers = problem_.profile.num_layers(),
            .num_experts = problem_.profile.num_experts(),
            .loads = loads,
            .num_physical = problem_.profile.num_experts() + options_.redundant_experts,
            .num_ranks = problem_.topology.num_ranks(),
            .num_nodes = num_groups > 1 ? problem_.topology.num_nodes() : 1,
            .num_groups = num_groups,
            .limits = limits()};
  }

  PlaceResult with_copies() const {
    const auto with_groups = [&](int num_groups) {
      return recordings_.size() > 1 ? across_recordings(num_groups) : with_replicas(num_groups);
    };
    PlaceResult solved = with_groups(options_.num_groups);
    if (options_.dispatch == Dispatch::even) return solved;
    std::vector<Placement> candidates = {solved.placement};
    if (recordings_.size() > 1) candidates.push_back(with_replicas(options_.num_groups).placement);
    if (nodes_matter()) {
      // Further candidates: each expert as its own group, with all its copies in one node; and copies on
      // every node.
      if (copies_fit_in_nodes()) {
        candidates.push_back(with_replicas(problem_.profile.num_experts()).placement);
        candidates.push_back(across_recordings(problem_.profile.num_experts()).placement);
      }
      const std::vector<double> sum(problem_.profile.loads().begin(), problem_.profile.loads().end());
      ReplicaProblem problem = replica_problem(sum, /*num_groups=*/1);
      problem.num_nodes = problem_.topology.num_nodes();
      if (const auto everywhere = replicate_on_every_node(problem))
        candidates.push_back(placement_of(*everywhere, problem.num_experts));
    }
    for (Placement& candidate : candidates) candidate = candidate.numbered(problem_.profile.layers());
    solved.placement = most_level_as_served(candidates, recordings_, problem_.topology, options_.dispatch,
                                            CopySwaps::within_nodes, limits());
    return as_served(std::move(solved));
  }

  bool nodes_matter() const { return !grouped() && problem_.topology.num_nodes() > 1; }

  bool copies_fit_in_nodes() const {
    try {
      PlaceOptions in_nodes = options_;
      in_nodes.num_groups = problem_.profile.num_experts();
      internal::validate_options(problem_.profile, problem_.topology, in_nodes, recordings_.size() > 1);
      const std::vector<double> all = loads();
      require_distinct_experts(replica_problem(all, in_nodes.num_groups));
    } catch (const Error&) {
      return false;  // nodes of unlike size, or with fewer experts than a rank has slots
    }
    return true;
  }

  bool is_served_evenly() const {
    const bool is_even = options_.dispatch == Dispatch::nearest && problem_.topology.num_nodes() == 1;
    return options_.dispatch == Dispatch::even || is_even;
  }

  // Recomputes the figures by the server's rule; if copies are used evenly, they are already right.
  PlaceResult as_served(PlaceResult solved) const {
    if (is_served_evenly()) return solved;
    add_max_over_mean(solved, mean(worst_by_layer(solved.placement)), 1,
                      "any placement, however tokens go to its copies");
    return solved;
  }

  // [L] max/mean as served, in the worst recording.
  std::vector<double> worst_by_layer(const Placement& placement) const {
    std::vector<double> worst(static_cast<std::size_t>(placement.num_layers()), 0);
    const CopyShares shares(placement, problem_.topology, options_.dispatch);
    for (const RoutingProfile& each : recordings_) {
      const PlacementQuality quality = placement_quality(each, problem_.topology, placement, shares);
      for (std::size_t l = 0; l < worst.size(); ++l) worst[l] = std::max(worst[l], quality.max_over_mean[l]);
    }
    return worst;
  }

  // Several recordings count as their sum.
  PlaceResult with_replicas(int num_groups) const {
    const std::vector<double> all(problem_.profile.loads().begin(), problem_.profile.loads().end());
    const ReplicaProblem problem = replica_problem(all, num_groups);
    require_distinct_experts(problem);
    return with_names(replicate(problem), num_groups > 1, "mean over layers");
  }

  PlaceResult across_recordings(int num_groups) const {
    const std::vector<double> all = loads();
    const ReplicaProblem problem = replica_problem(all, num_groups);
    require_distinct_experts(problem);
    const RobustSolution robust =
        replicate_robustly({.num_recordings = static_cast<int>(recordings_.size()), .of_each = problem});
    PlaceResult solved =
        with_names(robust.placed, num_groups > 1, "of the worst recording of each layer, mean over layers");
    if (!internal::has_replicas(options_)) prefer_sum_where_better(solved);
    return solved;
  }

  // Without copies another solver places the sum, and its result may be better on every recording.
  void prefer_sum_where_better(PlaceResult& solved) const {
    const Placement of_sum = internal::place_in_two_stages(problem_, options_, deadline_).placement;
    const auto worst_mean = [&](const Placement& placement) {
      double worst = 0;
      for (const RoutingProfile& each : recordings_)
        worst = std::max(worst, placement_quality(each, problem_.topology, placement).max_over_mean_mean);
      return worst;
    };
    if (worst_mean(of_sum) >= worst_mean(solved.placement)) return;
    solved.placement = of_sum;
    add_max_over_mean(solved, mean(worst_by_layer(of_sum)), solved.bound["max_over_mean"],
                      solved.bound_of["max_over_mean"]);
  }

  // Renames ranks to send least.
  Placement with_renamed_ranks(const ReplicaSolution& replicas, bool nodes_stay_together,
                               const SolveLimits& limits) const {
    require_capacity(replicas.slots_per_rank);
    Placement placement = placement_of(replicas, problem_.profile.num_experts());
    const bool traffic_known = problem_.traffic == TrafficModel::dispatch_combine
                                   ? !problem_.sources.estimated
                                   : problem_.profile.has_transitions();
    return traffic_known
               ? relabel_ranks(problem_, placement, replicas.slots_per_rank, nodes_stay_together, limits)
               : placement;
  }

  PlaceResult with_names(const ReplicaSolution& replicas, bool nodes_stay_together,
                         const std::string& what) const {
    PlaceResult solved{.placement = with_renamed_ranks(replicas, nodes_stay_together, limits())};
    const char* ways = options_.whole_groups            ? "place, groups staying whole"
                       : grouped()                      ? "copy and place, groups staying in a node"
                       : options_.redundant_experts > 0 ? "copy and place"
                                                        : "place with as many experts on each rank";
    add_max_over_mean(solved, mean(replicas.max_over_mean), mean(replicas.bound),
                      fmt::format("all ways to {}; {}", ways, what));
    return solved;
  }

  // Moves are chosen as if copies shared their tokens evenly, so they are made only where they leave ranks
  // more level as served. Moves to any rank and moves within nodes are both tried, and the better set is
  // used. Layers that this set makes worse keep their homes.
  PlaceResult incrementally_as_served() const {
    const Placement from = options_.from->numbered(numbers_of(problem_.profile, options_));
    const std::string by_even_split = fmt::format(
        "moves are chosen as if copies shared their tokens evenly, and made only where ranks are more level "
        "under dispatch '{}'; placing anew may be better",
        name_of(options_.dispatch));
    PlaceResult best = as_served(incrementally(grouped()));
    if (nodes_matter() && stays_in_nodes(from)) {
      PlaceResult in_nodes = as_served(incrementally(/*nodes_stay_together=*/true));
      if (max_over_mean(in_nodes) < max_over_mean(best)) best = std::move(in_nodes);
    }
    if (num_copies(best.placement) != num_copies(from))
      return with_move_notes(std::move(best), by_even_split);
    const Placement candidates[] = {from, best.placement};
    PlaceResult mixed = best;
    mixed.placement = most_level_as_served(candidates, recordings_, problem_.topology, options_.dispatch,
                                           CopySwaps::none, limits());
    mixed = as_served(std::move(mixed));
    PlaceResult unmoved = best;
    unmoved.placement = from;
    unmoved = as_served(std::move(unmoved));
    for (PlaceResult* other : {&mixed, &unmoved})
      if (max_over_mean(*other) < max_over_mean(best)) best = std::move(*other);
    return with_move_notes(std::move(best), by_even_split);
  }

  static double max_over_mean(const PlaceResult& solved) { return solved.objective.at("max_over_mean"); }

  bool stays_in_nodes(const Placement& placement) const {
    for (int layer = 0; layer < placement.num_layers(); ++layer)
      for (ExpertId expert : indices<ExpertId>(placement.num_experts()))
        for (RankId rank : placement.layer(layer).homes(expert))
          if (!problem_.topology.same_node(rank, placement.layer(layer).owner(expert))) return false;
    return true;
  }

  // Over all layers, each new home counts as a move.
  PlaceResult incrementally(bool nodes_stay_together) const {
    const std::vector<double> all = loads();
    IncrementalResult moved = place_incrementally(moves(all, nodes_stay_together));
    PlaceResult solved{.placement = moved.placement.numbered(numbers_of(problem_.profile, options_))};
    add_max_over_mean(solved, mean(moved.max_over_mean), 1, "any placement");
    return solved;
  }

  IncrementalProblem moves(std::span<const double> loads, bool nodes_stay_together) const {
    return {.current = *options_.from,
            .loads = loads,
            .max_moves = options_.max_moves,
            .num_nodes = nodes_stay_together ? problem_.topology.num_nodes() : 1,
            .slots_per_rank = slots_for_copies(*options_.from, options_.redundant_experts, problem_.topology),
            .limits = limits(),
            .num_recordings = static_cast<int>(recordings_.size())};
  }

  PlaceResult with_move_notes(PlaceResult solved, const std::string& note = {}) const {
    if (!note.empty()) solved.notes.push_back(note);
    const std::int64_t moved = move_between(*options_.from, solved.placement, {}).experts;
    solved.notes.push_back(
        fmt::format("{} experts got a new home; at most {} moves were allowed", moved, options_.max_moves));
    const std::vector<double> all = loads();
    solved.missing_copies =
        describe_missing_copies(moves(all, grouped()), solved.placement, options_.redundant_experts);
    if (!solved.missing_copies.empty()) solved.notes.push_back(solved.missing_copies);
    return solved;
  }

  void require_capacity(const std::vector<std::int32_t>& slots_per_rank) const {
    for (RankId rank : indices<RankId>(problem_.topology.num_ranks())) {
      const std::optional<int> capacity = problem_.topology.capacity(rank);
      const int slots = slots_per_rank[rank.offset()];
      if (capacity && *capacity < slots)
        throw Infeasible(fmt::format(
            "rank {} has capacity for {} physical experts a layer, but gets {} slots, since slots are "
            "shared out evenly; raise its capacity, or use fewer redundant experts",
            rank.value(), *capacity, slots));
    }
  }

  static double mean(const std::vector<double>& values) {
    return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
  }

  static void add_max_over_mean(PlaceResult& solved, double objective, double bound, std::string bound_of) {
    internal::add_objective(solved, "max_over_mean", objective, internal::reported_bound(objective, bound),
                            std::move(bound_of));
  }

  const PlacementProblem& problem_;
  std::span<const RoutingProfile> recordings_;
  const PlaceOptions& options_;
  const internal::Deadline& deadline_;
};

Placement placement_before(const RoutingProfile& profile, const Topology& topology,
                           const PlaceOptions& options) {
  if (options.from) return *options.from;
  return Placement::contiguous(profile.num_layers(), profile.num_experts(), topology.num_ranks());
}

// Such a layer tells nothing about its experts, and its ranks are level whatever the homes.
void note_layers_without_load(const RoutingProfile& profile, std::vector<std::string>& notes) {
  std::vector<int> without;
  for (LayerId layer : indices<LayerId>(profile.num_layers()))
    if (profile.total_load(layer) == 0) without.push_back(profile.layers().number_of(layer.value()));
  if (!without.empty())
    notes.push_back(
        fmt::format("layers {} have no assignment: any placement is level there, and their max/mean counts "
                    "as 1",
                    to_text(LayerNumbers(std::move(without)))));
}

std::vector<std::string> notes_of(const PlacementProblem& problem, const PlaceOptions& options) {
  std::vector<std::string> notes;
  note_layers_without_load(problem.profile, notes);
  if (problem.sources.estimated)
    notes.emplace_back(
        "it is not known which rank each token comes from: each rank is assumed to send an equal part of "
        "every expert's load");
  if (!internal::traffic_is_unknown(problem.profile, problem.traffic)) return notes;
  notes.emplace_back("the profile has no transitions: traffic is not known, and balance alone decides");
  const bool nodes_count =
      options.dispatch != Dispatch::even && (options.redundant_experts > 0 || options.from);
  if (problem.topology.num_nodes() > 1 && options.num_groups == 1 && !nodes_count)
    notes.emplace_back(
        "nodes have no effect on this placement: without traffic only expert groups would use them");
  return notes;
}

// Options whose `from` has its layers in the profile's order.
PlaceOptions paired(const RoutingProfile& profile, PlaceOptions options) {
  if (options.from)
    options.from =
        options.from->paired_with({"the profile", profile.layers(), profile.num_layers()}, "it", "from");
  return options;
}

// The topology whose nodes keep groups together.
Topology nodes_for_groups(const Topology& topology, const PlaceOptions& options) {
  if (!options.whole_groups || options.num_groups < 1) return topology;
  const std::optional<int> parts = parts_for_groups(options.num_groups, topology.num_ranks());
  if (!parts)
    throw InvalidArgument(
        "whole_groups",
        fmt::format("{} ranks cannot hold {} groups whole", topology.num_ranks(), options.num_groups),
        fmt::format("a number of ranks that divides {0} or is a multiple of {0}", options.num_groups));
  return with_parts_as_nodes(topology, *parts);
}

// Sets whether every objective is within the gap, and adds the notes that follow from it.
void conclude(PlaceResult& result, const SolveLimits& limits) {
  result.proven_optimal = std::ranges::all_of(result.objective, [&](const auto& reached) {
    return internal::is_within_gap(reached.second, result.bound.at(reached.first), limits.relative_gap);
  });
  if (result.proven_optimal && result.objective != result.bound)
    result.notes.push_back(fmt::format(
        "the placement counts as proven since it is within the requested gap of {}; a better one may exist",
        limits.relative_gap));
  result.ended_by_time =
      !result.proven_optimal && (result.ended_by_time || result.solve_ms >= limits.time_limit_s * 1e3);
  if (result.ended_by_time) result.notes.push_back(internal::note_of_time_limit(limits.time_limit_s));
}

// `recordings` add up to the profile; they are the profile alone if only the sum counts.
PlaceResult place_for(const RoutingProfile& profile, std::span<const RoutingProfile> recordings,
                      const Topology& topology, const PlaceOptions& asked) {
  const internal::Deadline deadline(asked.limits);
  const PlaceOptions options = paired(profile, asked);
  const Topology solved_on = nodes_for_groups(topology, options);
  internal::validate_options(profile, solved_on, options, recordings.size() > 1);
  if (recordings.size() > 1) internal::require_plain(options, "several recordings, unless across is sum");
  SourceCounts even;
  if (options.traffic == TrafficModel::dispatch_combine && options.sources.empty())
    even = even_source_counts(profile, topology.num_ranks());
  const auto problem_on = [&](const Topology& machine) {
    return PlacementProblem{.profile = profile,
                            .topology = machine,
                            .sizes = options.sizes,
                            .traffic = options.traffic,
                            .pairs = options.pairs,
                            .sources = even.empty() ? options.sources : even,
                            .cost = options.cost,
                            .dispatch = options.dispatch};
  };
  const PlacementProblem problem = problem_on(topology);
  PlaceResult result = Solve(problem_on(solved_on), recordings, options, deadline).run();
  result.solve_ms = deadline.seconds() * 1e3;
  result.placement = result.placement.numbered(numbers_of(profile, options));
  result.before = placement_quality(problem, placement_before(profile, topology, options));
  result.after = placement_quality(problem, result.placement);
  const std::vector<std::string> notes = notes_of(problem, options);
  result.notes.insert(result.notes.begin(), notes.begin(), notes.end());
  conclude(result, options.limits);
  return result;
}

// Adds up the recordings; the sum has transitions only if all recordings have them.
RoutingProfile sum_of(std::span<const RoutingProfile> recordings) {
  const bool transitions = std::ranges::all_of(recordings, &RoutingProfile::has_transitions);
  RoutingProfile sum = transitions ? recordings.front() : recordings.front().without_transitions();
  for (const RoutingProfile& other : recordings.subspan(1)) {
    if (transitions)
      sum.add(other);
    else
      sum.add(other.without_transitions());
  }
  return sum;
}

}  // namespace

PlaceResult place(const RoutingProfile& profile, const Topology& topology, const PlaceOptions& options) {
  return place_for(profile, std::span(&profile, 1), topology, options);
}

PlaceResult place(std::span<const RoutingProfile> recordings, const Topology& topology,
                  const PlaceOptions& options) {
  if (recordings.empty()) throw InvalidArgument("recordings", "is empty", "one or more");
  if (recordings.size() == 1) return place(recordings.front(), topology, options);
  const RoutingProfile sum = sum_of(recordings);
  const bool added_up = options.across == PlaceOptions::Across::sum;
  PlaceResult result = place_for(sum, added_up ? std::span(&sum, 1) : recordings, topology, options);
  const Placement before = placement_before(sum, topology, paired(sum, options));
  // Source counts are known only for all recordings together, so they are not used here.
  const CopyShares shares_before(before, topology, options.dispatch);
  const CopyShares shares(result.placement, topology, options.dispatch);
  for (const RoutingProfile& recording : recordings)
    result.per_recording.push_back({placement_quality(recording, topology, before, shares_before),
                                    placement_quality(recording, topology, result.placement, shares)});
  return result;
}

}  // namespace evenkeel
