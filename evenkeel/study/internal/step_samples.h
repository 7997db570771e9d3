// The samples that ranks note down of the steps they take, and the figures made of them.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "evenkeel/layer/step_statistics.h"
#include "evenkeel/study/experiment.h"

namespace evenkeel::internal {

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

// The same on every rank and in every round.
struct SlotPlan {
  std::vector<std::int64_t> rank_loads;
  std::int64_t transfers = 0;
  std::int64_t least_budget = 0;
};

// All ranks, in all steps of one batch: a round has a slot for each step. Ranks write samples of their own
// without waiting for each other; rank 0 writes the plans.
class StepSamples {
 public:
  static constexpr std::size_t kReference = 0;
  static constexpr std::size_t kControl = 1;
  static constexpr std::size_t kFirstCandidate = 2;

  StepSamples(int rounds, std::size_t slots, int ranks)
      : rounds_(rounds), ranks_(ranks), plans_(slots), samples_(size(rounds) * slots * size(ranks)) {}

  RankSample& at(int round, std::size_t slot, int rank) {
    return samples_[(size(round) * plans_.size() + slot) * size(ranks_) + size(rank)];
  }
  SlotPlan& plan(std::size_t slot) { return plans_[slot]; }

  // Medians over rounds; all but the candidate.
  CandidateFigures figures(std::size_t slot) const;
  // The reference's critical path to the control's.
  RoundRatio control() const { return round_ratio(ratios(&StepSamples::critical_seconds, kReference, kControl)); }

 private:
  static std::size_t size(int count) { return static_cast<std::size_t>(count); }
  const RankSample& at(int round, std::size_t slot, int rank) const {
    return const_cast<StepSamples&>(*this).at(round, slot, rank);
  }
  // Of what `of_rank` says of the samples of a step.
  template <class OfRank>
  double largest(int round, std::size_t slot, const OfRank& of_rank) const;
  template <class OfRank>
  double sum(int round, std::size_t slot, const OfRank& of_rank) const;
  double phase_seconds(int round, std::size_t slot, std::size_t phase) const;
  double critical_seconds(int round, std::size_t slot) const;
  double cpu_seconds(int round, std::size_t slot) const;  // of all ranks

  // One figure a round, ascending.
  template <class OfRound>
  std::vector<double> over_rounds(const OfRound& of_round) const;
  std::vector<double> ratios(double (StepSamples::*seconds)(int, std::size_t) const, std::size_t slot,
                             std::size_t to) const;
  void sum_last_round(std::size_t slot, CandidateFigures& figures) const;

  int rounds_;
  int ranks_;
  std::vector<SlotPlan> plans_;  // by slot
  std::vector<RankSample> samples_;
};

}  // namespace evenkeel::internal
