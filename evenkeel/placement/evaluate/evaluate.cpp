#include "evenkeel/placement/evaluate/evaluate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "evenkeel/base/error.h"
#include "evenkeel/cost/links.h"
#include "evenkeel/placement/evaluate/blocks.h"

namespace evenkeel {

namespace {

std::optional<StepSpread> spread_of(std::vector<double> ratios) {
  if (ratios.empty()) return std::nullopt;
  std::ranges::sort(ratios);
  const std::size_t half = ratios.size() / 2;
  return StepSpread{
      .mean = std::reduce(ratios.begin(), ratios.end(), 0.0) / static_cast<double>(ratios.size()),
      .median = ratios.size() % 2 == 1 ? ratios[half] : (ratios[half - 1] + ratios[half]) / 2,
      .p95 = quantile(ratios, 0.95),
      .worst = ratios.back()};
}

}  // namespace

RecordingJudgement judge(const RoutingProfile& recording, std::span<const RoutingProfile> steps,
                         const Topology& topology, const ServedPlacement& placement) {
  std::vector<double> ratios;
  for (const RoutingProfile& step : steps)
    if (const auto ratio = level_of(step, topology, placement)) ratios.push_back(*ratio);
  return {.quality = placement_quality(recording, topology, placement.homes, placement.shares),
          .steps = spread_of(std::move(ratios))};
}

Placement NamedPlacement::on(const Recording& recording, int num_ranks) const {
  const RoutingProfile& profile = recording.profile;
  if (!placement) return Placement::contiguous(profile.num_layers(), profile.num_experts(), num_ranks);
  if (placement->num_experts() != profile.num_experts())
    throw InvalidArgument(
        argument, fmt::format("{} is for {} experts", name, placement->num_experts()),
        fmt::format("a placement for {} experts, as {} has", profile.num_experts(), recording.name));
  return placement->paired_with(recording.rows(), name, argument);
}

ServedPlacement NamedPlacement::served_on(const Recording& recording, const Topology& topology) const {
  Placement homes = on(recording, topology.num_ranks());
  if (!placement) return {homes, {homes, topology, dispatch}};
  const std::vector<int> rows =
      paired_rows(recording.rows(), {name, placement->layers(), placement->num_layers()}, argument);
  return {std::move(homes), CopyShares(*placement, topology, dispatch).of_rows(rows)};
}

JudgedPlacement judge(NamedPlacement placement, std::span<const Recording> recordings,
                      const Topology& topology, std::vector<double> blocks) {
  JudgedPlacement judged{.placement = std::move(placement), .on = {}, .blocks = std::move(blocks)};
  std::vector<ServedPlacement> served;
  for (const Recording& each : recordings) {
    served.push_back(judged.placement.served_on(each, topology));
    judged.on.push_back(judge(each.profile, each.steps, topology, served.back()));
  }
  if (!judged.blocks.empty()) return judged;
  for (const Block& block : blocks_of(recordings)) judged.blocks.push_back(level_of(block, served, topology));
  return judged;
}

double level_of(const RecordingJudgement& judgement) {
  return judgement.steps ? judgement.steps->mean : judgement.quality.max_over_mean_mean;
}

const JudgedPlacement& most_level(std::span<const JudgedPlacement> placements) {
  return *std::ranges::min_element(placements, {}, [](const JudgedPlacement& each) {
    return std::accumulate(
        each.on.begin(), each.on.end(), 0.0,
        [](double sum, const RecordingJudgement& judgement) { return sum + level_of(judgement); });
  });
}

const Recording& widest(std::span<const Recording> recordings) {
  return *std::ranges::max_element(recordings, {},
                                   [](const Recording& each) { return each.profile.num_layers(); });
}

std::optional<double> slowest_link(const Topology& topology) {
  std::optional<double> slowest;
  for (RankId from : indices<RankId>(topology.num_ranks()))
    for (RankId to : indices<RankId>(topology.num_ranks())) {
      if (from == to) continue;
      const double link = topology.link(from, to).gigabytes_per_s;
      slowest = std::min(slowest.value_or(link), link);
    }
  return slowest;
}

std::optional<double> step_ms(const StepModel& model, int num_layers, int num_ranks, double max_over_mean) {
  if (!model.assignment_us || !model.assignments_per_step) return std::nullopt;
  return num_layers * max_over_mean * *model.assignments_per_step / num_ranks * *model.assignment_us / 1e3;
}

Move move_between(const Placement& before, const Placement& after, const StepModel& model) {
  if (before.num_layers() != after.num_layers() || before.num_experts() != after.num_experts() ||
      before.num_ranks() != after.num_ranks())
    throw InvalidArgument(
        "placement",
        fmt::format("has {} layers of {} experts on {} ranks", after.num_layers(), after.num_experts(),
                    after.num_ranks()),
        fmt::format("{} layers of {} experts on {} ranks, like the placement before the move",
                    before.num_layers(), before.num_experts(), before.num_ranks()));
  Move move;
  std::vector<std::int64_t> on_rank(static_cast<std::size_t>(after.num_ranks()), 0);
  for (int layer = 0; layer < after.num_layers(); ++layer)
    for (ExpertId expert : indices<ExpertId>(after.num_experts()))
      for (RankId rank : after.layer(layer).homes(expert))
        if (!before.layer(layer).is_home(expert, rank)) ++on_rank[rank.offset()];
  move.experts = std::reduce(on_rank.begin(), on_rank.end());
  move.most_on_rank = std::ranges::max(on_rank);
  if (!model.expert_bytes) return move;
  move.bytes = static_cast<double>(move.experts) * *model.expert_bytes;
  if (model.link_gigabytes_per_s)
    move.ms = 1e3 * wire_seconds({*model.link_gigabytes_per_s},
                                 static_cast<double>(move.most_on_rank) * *model.expert_bytes);
  return move;
}

}  // namespace evenkeel
