// The samples that ranks take of their steps, and the figures computed from them.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "evenkeel/layer/step_statistics.h"
#include "evenkeel/study/experiment.h"

namespace evenkeel::internal {

// One rank's sample of one step.
struct RankSample {
  std::array<std::array<double, kPhases>, 2> cpu_seconds{};  // for forward and backward
  double planning_seconds = 0;
  int chunks = 0;  // of the forward pass
  std::int64_t assignments = 0;
  std::int64_t recomputed_assignments = 0;
  double begin = 0;  // wall-clock times
  double end = 0;
  double wait_seconds = 0;  // time spent waiting for peers during chunks, without copying
  std::int64_t peak_bytes = 0;
  std::int64_t dispatch_bytes = 0;
  std::int64_t combine_bytes = 0;
  std::int64_t transfer_bytes = 0;
  std::int64_t bytes_between_nodes = 0;  // bytes sent
  std::int64_t dispatch_bytes_between_nodes = 0;
  std::int64_t transfer_bytes_between_nodes = 0;
};

// The part of a slot's samples that is the same on every rank and in every round.
struct SlotPlan {
  std::vector<std::int64_t> rank_loads;
  std::vector<Transfer> transfers;
  StepReason reason = StepReason::as_planned;
  std::int64_t least_budget = 0;
};

// Samples of all ranks and all steps of one batch. A round has one slot for each step. A rank writes only its
// own samples, so ranks need not wait for each other. Rank 0 writes the plans.
class StepSamples {
 public:
  StepSamples(int rounds, std::size_t slots, int ranks)
      : rounds_(rounds),
        ranks_(ranks),
        plans_(slots),
        samples_(size(rounds) * slots * size(ranks)),
        records_(slots, std::vector<StepRecord>(size(ranks))) {}

  int rounds() const { return rounds_; }
  RankSample& at(int round, std::size_t slot, int rank) { return samples_[first(round, slot) + size(rank)]; }
  // One sample for each rank.
  std::span<const RankSample> at(int round, std::size_t slot) const {
    return std::span(samples_).subspan(first(round, slot), size(ranks_));
  }
  SlotPlan& plan(std::size_t slot) { return plans_[slot]; }
  const SlotPlan& plan(std::size_t slot) const { return plans_[slot]; }
  // Records of the last round, one for each rank; empty without timelines.
  std::vector<StepRecord>& records(std::size_t slot) { return records_[slot]; }
  const std::vector<StepRecord>& records(std::size_t slot) const { return records_[slot]; }

 private:
  static std::size_t size(int count) { return static_cast<std::size_t>(count); }
  std::size_t first(int round, std::size_t slot) const {
    return (size(round) * plans_.size() + slot) * size(ranks_);
  }

  int rounds_;
  int ranks_;
  std::vector<SlotPlan> plans_;  // one for each slot
  std::vector<RankSample> samples_;
  std::vector<std::vector<StepRecord>> records_;  // by slot, then by rank
};

// Slots of a round: first the reference, then the reference again, then the candidates.
inline constexpr std::size_t kReference = 0;
inline constexpr std::size_t kControl = 1;
inline constexpr std::size_t kFirstCandidate = 2;

// Medians over rounds. Sets all fields except `candidate`.
CandidateFigures figures_of(const StepSamples& samples, std::size_t slot,
                            const std::vector<int>& node_of_rank);
// Ratio of the reference's critical path to the control's.
RoundRatio control_of(const StepSamples& samples);

}  // namespace evenkeel::internal
