// The samples that ranks note down of the steps they take, and the figures made of them.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "cli/experiment.h"
#include "evenkeel/layer/step_statistics.h"

namespace evenkeel::cli {

// One rank in one step.
struct RankSample {
  std::array<std::array<double, kPhases>, 2> cpu_seconds{};  // forward, backward
  double planning_seconds = 0;
  int chunks = 0;  // of the forward pass
  std::int64_t assignments = 0;
  std::int64_t recomputed_assignments = 0;
  double begin = 0;  // by the clock
  double end = 0;
  double wait_seconds = 0;  // for peers, not copying, while chunks were on their way
  std::int64_t peak_bytes = 0;
  std::int64_t dispatch_bytes = 0;
  std::int64_t combine_bytes = 0;
  std::int64_t transfer_bytes = 0;
};

// All ranks, in all steps of one batch. Ranks write samples of their own without waiting for each other.
class StepSamples {
 public:
  StepSamples(int rounds, std::size_t slots, int ranks)
      : rounds_(rounds), slots_(slots), ranks_(ranks), samples_(size(rounds) * slots * size(ranks)) {}

  RankSample& at(int round, std::size_t slot, int rank) {
    return samples_[(size(round) * slots_ + slot) * size(ranks_) + size(rank)];
  }
  const RankSample& at(int round, std::size_t slot, int rank) const {
    return const_cast<StepSamples&>(*this).at(round, slot, rank);
  }

  double critical_seconds(int round, std::size_t slot) const;
  double cpu_seconds(int round, std::size_t slot) const;  // of all ranks
  // Medians over rounds of one slot; all but what the plan says.
  void summarize(std::size_t slot, CandidateFigures& figures) const;
  // Of critical paths, one a round, ascending.
  std::vector<double> time_ratios(std::size_t slot, std::size_t to) const;
  std::vector<double> cpu_ratios(std::size_t slot, std::size_t to) const;

 private:
  static std::size_t size(int count) { return static_cast<std::size_t>(count); }
  double mean_wait_seconds(int round, std::size_t slot) const;
  double phase_seconds(int round, std::size_t slot, std::size_t phase) const;
  template <class Figure>
  double median_over_rounds(const Figure& of_round) const;
  template <class Figure>
  std::vector<double> over_rounds(const Figure& of_round) const;

  int rounds_;
  std::size_t slots_;
  int ranks_;
  std::vector<RankSample> samples_;
};

}  // namespace evenkeel::cli
