#include "evenkeel/study/internal/step_samples.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace evenkeel::internal {

namespace {

using Step = std::span<const RankSample>;  // one sample for each rank

template <class OfRank>
double largest(Step step, const OfRank& of_rank) {
  return std::invoke(of_rank, *std::ranges::max_element(step, {}, of_rank));
}

template <class OfRank>
double sum(Step step, const OfRank& of_rank) {
  double all = 0;
  for (const RankSample& sample : step) all += std::invoke(of_rank, sample);
  return all;
}

double phase_seconds(Step step, std::size_t phase) {
  return largest(step, [&](const RankSample& s) { return s.cpu_seconds[0][phase]; }) +
         largest(step, [&](const RankSample& s) { return s.cpu_seconds[1][phase]; });
}

double critical_seconds(Step step) {
  double all = 0;
  for (std::size_t phase = 0; phase < kPhases; ++phase) all += phase_seconds(step, phase);
  return all;
}

// CPU seconds, summed over all ranks.
double cpu_seconds(Step step) {
  return sum(step, [](const RankSample& s) {
    double all = 0;
    for (const auto& of_pass : s.cpu_seconds) all = std::accumulate(of_pass.begin(), of_pass.end(), all);
    return all;
  });
}

double wall_seconds(Step step) {
  return largest(step, &RankSample::end) - std::ranges::min(step, {}, &RankSample::begin).begin;
}

// One ratio for each round, in ascending order.
template <class OfStep>
std::vector<double> ratios(const StepSamples& samples, std::size_t slot, std::size_t to,
                           const OfStep& of_step) {
  std::vector<double> figures;
  for (int round = 0; round < samples.rounds(); ++round)
    figures.push_back(of_step(samples.at(round, slot)) / of_step(samples.at(round, to)));
  std::ranges::sort(figures);
  return figures;
}

template <class OfStep>
double median(const StepSamples& samples, std::size_t slot, const OfStep& of_step) {
  std::vector<double> figures;
  for (int round = 0; round < samples.rounds(); ++round) figures.push_back(of_step(samples.at(round, slot)));
  std::ranges::sort(figures);
  return quantile(figures, 0.5);
}

// Bytes are the same in every round. The number of chunks is also the same on every rank. The peak is the
// highest over all rounds.
void count_bytes(const StepSamples& samples, std::size_t slot, const std::vector<int>& node_of_rank,
                 CandidateFigures& figures) {
  const Step last = samples.at(samples.rounds() - 1, slot);
  figures.peak_bytes.resize(last.size());
  for (int round = 0; round < samples.rounds(); ++round)
    std::ranges::transform(
        samples.at(round, slot), figures.peak_bytes, figures.peak_bytes.begin(),
        [](const RankSample& s, std::int64_t before) { return std::max(before, s.peak_bytes); });
  std::int64_t assignments = 0;
  std::int64_t recomputed = 0;
  figures.chunks = last.front().chunks;
  for (const RankSample& sample : last) {
    figures.dispatch_bytes += sample.dispatch_bytes;
    figures.combine_bytes += sample.combine_bytes;
    figures.transfer_bytes += sample.transfer_bytes;
    figures.bytes_between_nodes += sample.bytes_between_nodes;
    figures.dispatch_bytes_between_nodes += sample.dispatch_bytes_between_nodes;
    figures.transfer_bytes_between_nodes += sample.transfer_bytes_between_nodes;
    assignments += sample.assignments;
    recomputed += sample.recomputed_assignments;
  }
  std::map<int, std::int64_t> of_node;
  for (std::size_t rank = 0; rank < node_of_rank.size(); ++rank)
    of_node[node_of_rank[rank]] += last[rank].bytes_between_nodes;
  for (const auto& [node, bytes] : of_node)
    figures.most_bytes_of_a_node = std::max(figures.most_bytes_of_a_node, bytes);
  if (assignments > 0)
    figures.recomputed_fraction = static_cast<double>(recomputed) / static_cast<double>(assignments);
}

}  // namespace

CandidateFigures figures_of(const StepSamples& samples, std::size_t slot,
                            const std::vector<int>& node_of_rank) {
  const auto in_median = [&](const auto& of_step) { return median(samples, slot, of_step); };
  CandidateFigures figures;
  figures.critical_ms = 1e3 * in_median(critical_seconds);
  figures.wall_ms = 1e3 * in_median(wall_seconds);
  figures.wait_ms = 1e3 * in_median([](Step step) {
                      return sum(step, &RankSample::wait_seconds) / static_cast<double>(step.size());
                    });
  figures.least_wait_ms = 1e3 * in_median([](Step step) {
                            return std::ranges::min(step, {}, &RankSample::wait_seconds).wait_seconds;
                          });
  for (std::size_t phase = 0; phase < kPhases; ++phase)
    figures.phases_ms[phase] = 1e3 * in_median([&](Step step) { return phase_seconds(step, phase); });
  figures.plan_us = 1e6 * in_median([](Step step) { return largest(step, &RankSample::planning_seconds); });
  figures.speedup = quantile(ratios(samples, kReference, slot, critical_seconds), 0.5);
  figures.time = round_ratio(ratios(samples, slot, kReference, critical_seconds));
  figures.cpu = round_ratio(ratios(samples, slot, kReference, cpu_seconds));
  const SlotPlan& plan = samples.plan(slot);
  figures.rank_loads = plan.rank_loads;
  figures.balance = imbalance(plan.rank_loads);
  figures.transfers = std::ssize(plan.transfers);
  figures.reason = plan.reason;
  figures.least_budget = plan.least_budget;
  count_bytes(samples, slot, node_of_rank, figures);
  return figures;
}

RoundRatio control_of(const StepSamples& samples) {
  return round_ratio(ratios(samples, kReference, kControl, critical_seconds));
}

}  // namespace evenkeel::internal
