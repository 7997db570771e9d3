#include "benchmarks/placement_study/judge.h"

#include <algorithm>

#include "evenkeel/balance/planner.h"
#include "evenkeel/placement/quality.h"
#include "evenkeel/placement/traffic.h"
#include "evenkeel/plan/counts.h"

namespace evenkeel::study {

namespace {

struct Spill {
  double share = 0;
  double transfers = 0;
};

Counts counts_of(const SourceCounts& sources, LayerId layer) {
  Counts counts(sources.num_ranks, sources.num_experts);
  std::size_t at = 0;
  for (RankId rank : indices<RankId>(sources.num_ranks))
    for (ExpertId expert : indices<ExpertId>(sources.num_experts))
      counts.rows()[at++] = static_cast<std::int64_t>(sources.at(layer, rank, expert));
  counts.sum_loads();
  return counts;
}

// Assignments and weights that `level` moves to bring every rank to the mean, without a threshold.
Spill spill_of(const SourceCounts& sources, const Placement& placement) {
  const auto planner = make_planner(
      {.kind = PlannerOptions::Kind::level, .min_segment = 64, .imbalance_threshold_thousandths = 0});
  Spill mean;
  StepPlan plan;
  for (LayerId layer : indices<LayerId>(sources.num_layers)) {
    const LayerPlacement& homes = placement.layer(layer.value());
    const Counts counts = counts_of(sources, layer);
    planner->plan(counts, homes, plan);
    std::int64_t away = 0;
    for (ExpertId expert : indices<ExpertId>(homes.num_experts()))
      for (const Segment& segment : plan.segments(expert))
        if (!homes.is_home(expert, segment.rank)) away += segment.end - segment.begin;
    mean.share += static_cast<double>(away) / static_cast<double>(std::max<std::int64_t>(counts.total(), 1));
    mean.transfers += static_cast<double>(plan.transfers().size());
  }
  return {mean.share / sources.num_layers, mean.transfers / sources.num_layers};
}

Verdict judge_one(const Recording& part, const Placement& placement, const Setting& setting) {
  MemoryTrace trace = part.trace();
  const RoutingProfile profile = profile_trace(trace);
  const SourceCounts none;
  const bool dispatches = setting.traffic == TrafficModel::dispatch_combine;
  const SourceCounts sources = source_counts(trace, setting.topology.num_ranks());
  const PlacementProblem problem{.profile = profile,
                                 .topology = setting.topology,
                                 .traffic = setting.traffic,
                                 .sources = dispatches ? sources : none,
                                 .cost = setting.cost};
  const PlacementQuality quality = placement_quality(problem, placement);
  const Spill spill = spill_of(sources, placement);
  return {.max_over_mean = quality.max_over_mean_mean,
          .worst_layer = quality.max_over_mean_worst,
          .crossing = quality.crossing / quality.total,
          .across_nodes = quality.crossing_across / quality.total,
          .worst_pair = quality.worst_pair / quality.total,
          .predicted_ms = joint_objective_ms(problem, placement) / part.num_layers,
          .spilled = spill.share,
          .transfers = spill.transfers};
}

}  // namespace

Verdict judge(const std::vector<Recording>& parts, const Placement& placement, const Setting& setting) {
  Verdict mean;
  for (const Recording& part : parts) {
    const Verdict one = judge_one(part, placement, setting);
    mean.max_over_mean += one.max_over_mean;
    mean.worst_layer = std::max(mean.worst_layer, one.worst_layer);
    mean.crossing += one.crossing;
    mean.across_nodes += one.across_nodes;
    mean.worst_pair += one.worst_pair;
    mean.predicted_ms += one.predicted_ms;
    mean.spilled += one.spilled;
    mean.transfers += one.transfers;
  }
  const auto count = static_cast<double>(parts.size());
  for (double Verdict::*member :
       {&Verdict::max_over_mean, &Verdict::crossing, &Verdict::across_nodes, &Verdict::worst_pair,
        &Verdict::predicted_ms, &Verdict::spilled, &Verdict::transfers})
    mean.*member /= count;
  return mean;
}

}  // namespace evenkeel::study
