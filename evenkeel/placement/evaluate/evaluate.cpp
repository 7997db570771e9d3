#include "evenkeel/placement/evaluate/evaluate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "evenkeel/base/error.h"

namespace evenkeel {

namespace {

bool has_load(const RoutingProfile& profile, LayerId layer) {
  return std::ranges::any_of(profile.loads(layer), [](std::int64_t load) { return load > 0; });
}

// Mean over the layers with load; a step without any has nothing to be uneven.
std::optional<double> max_over_mean_of_step(const RoutingProfile& step, const Topology& topology,
                                            const Placement& placement, const CopyShares& shares) {
  const PlacementQuality quality = placement_quality(step, topology, placement, shares);
  double sum = 0;
  int layers = 0;
  for (LayerId layer : indices<LayerId>(step.num_layers())) {
    if (!has_load(step, layer)) continue;
    sum += quality.max_over_mean[layer.offset()];
    ++layers;
  }
  if (layers == 0) return std::nullopt;
  return sum / layers;
}

// The smallest value that so large a part of all does not exceed. Sorted.
double quantile(const std::vector<double>& sorted, double part) {
  const double rank = std::ceil(part * static_cast<double>(sorted.size()));
  return sorted[static_cast<std::size_t>(std::max(rank, 1.0)) - 1];
}

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

double ratio_of(const RecordingJudgement& judgement) {
  return judgement.steps ? judgement.steps->mean : judgement.quality.max_over_mean_mean;
}

std::string counted(double number, const char* what) {
  return fmt::format("{:.0f} {}{}", number, what, number == 1 ? "" : "s");
}

std::string time_text(double ms) {
  if (ms >= 1000) return fmt::format("{:.2f} s", ms / 1000);
  return ms >= 1 ? fmt::format("{:.2f} ms", ms) : fmt::format("{:.2f} us", ms * 1000);
}

std::string unknowns_of(const Verdict& verdict, std::optional<double> horizon) {
  std::vector<std::string> unknown;
  if (!verdict.step_ms_before) unknown.emplace_back("what a step takes");
  if (!verdict.move.ms) unknown.emplace_back("what the move takes");
  if (!horizon) unknown.emplace_back("how many steps it will serve");
  std::string text;
  for (std::size_t i = 0; i < unknown.size(); ++i)
    text += (i == 0 ? "" : i + 1 == unknown.size() ? " and " : ", ") + unknown[i];
  return text;
}

void decide(std::optional<double> horizon, Verdict& verdict) {
  const bool saves = verdict.max_over_mean_after < verdict.max_over_mean_before;
  if (!saves) {
    verdict.answer = Verdict::Answer::does_not_pay;
    verdict.sentence = fmt::format("it does not pay: max/mean goes from {:.3f} to {:.3f} over {}",
                                   verdict.max_over_mean_before, verdict.max_over_mean_after,
                                   counted(verdict.recordings, "recording"));
    return;
  }
  if (!verdict.break_even_steps || !horizon) {
    verdict.answer = verdict.move.experts == 0 ? Verdict::Answer::pays : Verdict::Answer::depends;
    verdict.sentence = verdict.break_even_steps
                           ? fmt::format("it depends on {}: it pays after {}", unknowns_of(verdict, horizon),
                                         counted(std::ceil(*verdict.break_even_steps), "step"))
                           : fmt::format("it depends on {}: max/mean goes from {:.3f} to {:.3f}",
                                         unknowns_of(verdict, horizon), verdict.max_over_mean_before,
                                         verdict.max_over_mean_after);
    if (verdict.move.experts == 0) verdict.sentence = "it pays: nothing has to move";
    return;
  }
  const bool pays = *horizon > *verdict.break_even_steps;
  verdict.answer = pays ? Verdict::Answer::pays : Verdict::Answer::does_not_pay;
  verdict.sentence =
      fmt::format("it {}: {} a step are saved, the move takes {}, so it pays after {}, and {} {} asked about",
                  pays ? "pays" : "does not pay", time_text(*verdict.step_ms_before - *verdict.step_ms_after),
                  time_text(*verdict.move.ms), counted(std::ceil(*verdict.break_even_steps), "step"),
                  counted(*horizon, "step"), *horizon == 1 ? "is" : "are");
}

}  // namespace

RecordingJudgement judge(const RoutingProfile& recording, std::span<const RoutingProfile> steps,
                         const Topology& topology, const Placement& placement, const CopyShares& shares) {
  std::vector<double> ratios;
  for (const RoutingProfile& step : steps)
    if (const auto ratio = max_over_mean_of_step(step, topology, placement, shares)) ratios.push_back(*ratio);
  return {.quality = placement_quality(recording, topology, placement, shares),
          .steps = spread_of(std::move(ratios))};
}

Placement NamedPlacement::on(const Recording& recording, int num_ranks) const {
  const RoutingProfile& profile = recording.profile;
  if (!placement) return Placement::contiguous(profile.num_layers(), profile.num_experts(), num_ranks);
  if (placement->num_experts() != profile.num_experts())
    throw InvalidArgument(
        argument, fmt::format("{} is for {} experts", name, placement->num_experts()),
        fmt::format("one for {} experts, as {} has", profile.num_experts(), recording.name));
  return placement->paired_with(recording.rows(), name, argument);
}

RecordingJudgement NamedPlacement::judged_on(const Recording& recording, const Topology& topology) const {
  const Placement homes = on(recording, topology.num_ranks());
  if (!placement)
    return judge(recording.profile, recording.steps, topology, homes, {homes, topology, dispatch});
  const std::vector<int> rows =
      paired_rows(recording.rows(), {name, placement->layers(), placement->num_layers()}, argument);
  return judge(recording.profile, recording.steps, topology, homes,
               CopyShares(*placement, topology, dispatch).of_rows(rows));
}

JudgedPlacement judge(NamedPlacement placement, std::span<const Recording> recordings,
                      const Topology& topology) {
  JudgedPlacement judged{.placement = std::move(placement), .on = {}};
  for (const Recording& each : recordings) judged.on.push_back(judged.placement.judged_on(each, topology));
  return judged;
}

const JudgedPlacement& most_level(std::span<const JudgedPlacement> placements) {
  return *std::ranges::min_element(placements, {}, [](const JudgedPlacement& each) {
    return std::accumulate(
        each.on.begin(), each.on.end(), 0.0,
        [](double sum, const RecordingJudgement& judgement) { return sum + ratio_of(judgement); });
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
    throw InvalidArgument("placement",
                          fmt::format("has {} layers of {} experts on {} ranks", after.num_layers(),
                                      after.num_experts(), after.num_ranks()),
                          fmt::format("{} layers of {} experts on {} ranks, as the one before",
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
    move.ms =
        static_cast<double>(move.most_on_rank) * *model.expert_bytes / *model.link_gigabytes_per_s / 1e6;
  return move;
}

const char* name_of(Verdict::Answer answer) {
  if (answer == Verdict::Answer::depends) return "depends";
  return answer == Verdict::Answer::pays ? "pays" : "does not pay";
}

Verdict verdict_of(std::span<const RecordingJudgement> before, std::span<const RecordingJudgement> after,
                   const Move& move, const StepModel& model, int num_layers, int num_ranks,
                   std::optional<double> horizon) {
  if (before.empty() || before.size() != after.size())
    throw InvalidArgument("recordings", fmt::format("{} before and {} after", before.size(), after.size()),
                          "the same recordings, one or more");
  Verdict verdict{
      .recordings = static_cast<int>(before.size()), .move = move, .notes = model.notes, .model = model};
  const auto count = static_cast<double>(before.size());
  verdict.max_over_mean_before = verdict.max_over_mean_after = 0;
  for (std::size_t i = 0; i < before.size(); ++i) {
    verdict.max_over_mean_before += ratio_of(before[i]) / count;
    verdict.max_over_mean_after += ratio_of(after[i]) / count;
    verdict.better_on += ratio_of(after[i]) < ratio_of(before[i]) ? 1 : 0;
    verdict.of_steps = verdict.of_steps || after[i].steps.has_value();
  }
  verdict.step_ms_before = step_ms(model, num_layers, num_ranks, verdict.max_over_mean_before);
  verdict.step_ms_after = step_ms(model, num_layers, num_ranks, verdict.max_over_mean_after);
  if (verdict.step_ms_before && move.ms && *verdict.step_ms_after < *verdict.step_ms_before)
    verdict.break_even_steps = *move.ms / (*verdict.step_ms_before - *verdict.step_ms_after);
  decide(horizon, verdict);
  return verdict;
}

Verdict verdict_of(std::span<const Recording> recordings, const JudgedPlacement& before,
                   const JudgedPlacement& after, const StepModel& model, int num_ranks,
                   std::optional<double> horizon) {
  const Recording& whole = widest(recordings);
  const Move move =
      move_between(before.placement.on(whole, num_ranks), after.placement.on(whole, num_ranks), model);
  Verdict verdict =
      verdict_of(before.on, after.on, move, model, whole.profile.num_layers(), num_ranks, horizon);
  verdict.placement = after.placement.name;
  verdict.against = before.placement.name;
  return verdict;
}

}  // namespace evenkeel
