#include "evenkeel/study/internal/step_samples.h"

#include <algorithm>
#include <numeric>

namespace evenkeel::internal {

template <class OfRank>
double StepSamples::largest(int round, std::size_t slot, const OfRank& of_rank) const {
  double most = of_rank(at(round, slot, 0));
  for (int rank = 1; rank < ranks_; ++rank) most = std::max(most, of_rank(at(round, slot, rank)));
  return most;
}

template <class OfRank>
double StepSamples::sum(int round, std::size_t slot, const OfRank& of_rank) const {
  double all = 0;
  for (int rank = 0; rank < ranks_; ++rank) all += of_rank(at(round, slot, rank));
  return all;
}

double StepSamples::phase_seconds(int round, std::size_t slot, std::size_t phase) const {
  return largest(round, slot, [&](const RankSample& s) { return s.cpu_seconds[0][phase]; }) +
         largest(round, slot, [&](const RankSample& s) { return s.cpu_seconds[1][phase]; });
}

double StepSamples::critical_seconds(int round, std::size_t slot) const {
  double all = 0;
  for (std::size_t phase = 0; phase < kPhases; ++phase) all += phase_seconds(round, slot, phase);
  return all;
}

double StepSamples::cpu_seconds(int round, std::size_t slot) const {
  return sum(round, slot, [](const RankSample& s) {
    double all = 0;
    for (const auto& of_pass : s.cpu_seconds) all = std::accumulate(of_pass.begin(), of_pass.end(), all);
    return all;
  });
}

template <class OfRound>
std::vector<double> StepSamples::over_rounds(const OfRound& of_round) const {
  std::vector<double> figures;
  for (int round = 0; round < rounds_; ++round) figures.push_back(of_round(round));
  std::ranges::sort(figures);
  return figures;
}

std::vector<double> StepSamples::ratios(double (StepSamples::*seconds)(int, std::size_t) const,
                                        std::size_t slot, std::size_t to) const {
  return over_rounds(
      [&](int round) { return (this->*seconds)(round, slot) / (this->*seconds)(round, to); });
}

CandidateFigures StepSamples::figures(std::size_t slot) const {
  using S = RankSample;
  const auto median = [&](const auto& of_round) { return quantile(over_rounds(of_round), 0.5); };
  CandidateFigures figures;
  figures.critical_ms = 1e3 * median([&](int round) { return critical_seconds(round, slot); });
  figures.wall_ms = 1e3 * median([&](int round) {
                      return largest(round, slot, [](const S& s) { return s.end; }) +
                             largest(round, slot, [](const S& s) { return -s.begin; });
                    });
  figures.plan_us = 1e6 * median([&](int round) {
                      return largest(round, slot, [](const S& s) { return s.planning_seconds; });
                    });
  figures.wait_ms = 1e3 * median([&](int round) {
                      return sum(round, slot, [](const S& s) { return s.wait_seconds; }) / ranks_;
                    });
  figures.least_wait_ms = -1e3 * median([&](int round) {
    return largest(round, slot, [](const S& s) { return -s.wait_seconds; });
  });
  for (std::size_t phase = 0; phase < kPhases; ++phase)
    figures.phases_ms[phase] = 1e3 * median([&](int round) { return phase_seconds(round, slot, phase); });
  figures.speedup = quantile(ratios(&StepSamples::critical_seconds, kReference, slot), 0.5);
  figures.time = round_ratio(ratios(&StepSamples::critical_seconds, slot, kReference));
  figures.cpu = round_ratio(ratios(&StepSamples::cpu_seconds, slot, kReference));
  figures.rank_loads = plans_[slot].rank_loads;
  figures.balance = imbalance(figures.rank_loads);
  figures.transfers = plans_[slot].transfers;
  figures.least_budget = plans_[slot].least_budget;
  sum_last_round(slot, figures);
  return figures;
}

// Bytes and chunks are the same in every round; the peak is the highest of all.
void StepSamples::sum_last_round(std::size_t slot, CandidateFigures& figures) const {
  std::int64_t assignments = 0;
  std::int64_t recomputed = 0;
  figures.chunks = at(rounds_ - 1, slot, 0).chunks;  // the same on every rank
  for (int rank = 0; rank < ranks_; ++rank) {
    std::int64_t& peak = figures.peak_bytes.emplace_back(0);
    for (int round = 0; round < rounds_; ++round) peak = std::max(peak, at(round, slot, rank).peak_bytes);
    const RankSample& last = at(rounds_ - 1, slot, rank);
    figures.dispatch_bytes += last.dispatch_bytes;
    figures.combine_bytes += last.combine_bytes;
    figures.transfer_bytes += last.transfer_bytes;
    assignments += last.assignments;
    recomputed += last.recomputed_assignments;
  }
  if (assignments > 0)
    figures.recomputed_fraction = static_cast<double>(recomputed) / static_cast<double>(assignments);
}

}  // namespace evenkeel::internal
