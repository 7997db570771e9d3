#include "cli/step_samples.h"

#include <algorithm>
#include <numeric>

#include "cli/round_ratio.h"

namespace evenkeel::cli {

double StepSamples::phase_seconds(int round, std::size_t slot, std::size_t phase) const {
  double sum = 0;
  for (std::size_t pass : {0u, 1u}) {
    double largest = 0;
    for (int rank = 0; rank < ranks_; ++rank)
      largest = std::max(largest, at(round, slot, rank).cpu_seconds[pass][phase]);
    sum += largest;
  }
  return sum;
}

double StepSamples::critical_seconds(int round, std::size_t slot) const {
  double sum = 0;
  for (std::size_t phase = 0; phase < kPhases; ++phase) sum += phase_seconds(round, slot, phase);
  return sum;
}

double StepSamples::cpu_seconds(int round, std::size_t slot) const {
  double sum = 0;
  for (int rank = 0; rank < ranks_; ++rank)
    for (const auto& of_pass : at(round, slot, rank).cpu_seconds)
      sum += std::accumulate(of_pass.begin(), of_pass.end(), 0.0);
  return sum;
}

double StepSamples::mean_wait_seconds(int round, std::size_t slot) const {
  double sum = 0;
  for (int rank = 0; rank < ranks_; ++rank) sum += at(round, slot, rank).wait_seconds;
  return sum / ranks_;
}

template <class Figure>
std::vector<double> StepSamples::over_rounds(const Figure& of_round) const {
  std::vector<double> figures;
  for (int round = 0; round < rounds_; ++round) figures.push_back(of_round(round));
  std::ranges::sort(figures);
  return figures;
}

template <class Figure>
double StepSamples::median_over_rounds(const Figure& of_round) const {
  return quantile(over_rounds(of_round), 0.5);
}

void StepSamples::summarize(std::size_t slot, CandidateFigures& figures) const {
  const auto largest = [&](int round, const auto& of_rank) {
    double most = of_rank(at(round, slot, 0));
    for (int rank = 1; rank < ranks_; ++rank) most = std::max(most, of_rank(at(round, slot, rank)));
    return most;
  };
  figures.critical_ms = 1e3 * median_over_rounds([&](int round) { return critical_seconds(round, slot); });
  figures.wall_ms = 1e3 * median_over_rounds([&](int round) {
                      return largest(round, [](const RankSample& s) { return s.end; }) +
                             largest(round, [](const RankSample& s) { return -s.begin; });
                    });
  figures.plan_us = 1e6 * median_over_rounds([&](int round) {
                      return largest(round, [](const RankSample& s) { return s.planning_seconds; });
                    });
  figures.wait_ms = 1e3 * median_over_rounds([&](int round) { return mean_wait_seconds(round, slot); });
  figures.least_wait_ms = -1e3 * median_over_rounds([&](int round) {
    return largest(round, [](const RankSample& s) { return -s.wait_seconds; });
  });
  for (std::size_t phase = 0; phase < kPhases; ++phase)
    figures.phases_ms[phase] =
        1e3 * median_over_rounds([&](int round) { return phase_seconds(round, slot, phase); });

  std::int64_t assignments = 0;
  std::int64_t recomputed = 0;
  figures.chunks = at(rounds_ - 1, slot, 0).chunks;  // the same on every rank
  figures.peak_bytes.assign(size(ranks_), 0);
  for (int rank = 0; rank < ranks_; ++rank) {
    std::int64_t& peak = figures.peak_bytes[size(rank)];
    for (int round = 0; round < rounds_; ++round) peak = std::max(peak, at(round, slot, rank).peak_bytes);
    const RankSample& last = at(rounds_ - 1, slot, rank);  // the bytes of every step are the same
    figures.dispatch_bytes += last.dispatch_bytes;
    figures.combine_bytes += last.combine_bytes;
    figures.transfer_bytes += last.transfer_bytes;
    assignments += last.assignments;
    recomputed += last.recomputed_assignments;
  }
  if (assignments > 0)
    figures.recomputed_fraction = static_cast<double>(recomputed) / static_cast<double>(assignments);
}

std::vector<double> StepSamples::time_ratios(std::size_t slot, std::size_t to) const {
  return over_rounds([&](int round) { return critical_seconds(round, slot) / critical_seconds(round, to); });
}

std::vector<double> StepSamples::cpu_ratios(std::size_t slot, std::size_t to) const {
  return over_rounds([&](int round) { return cpu_seconds(round, slot) / cpu_seconds(round, to); });
}

}  // namespace evenkeel::cli
