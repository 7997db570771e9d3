// The candidates for running a step under one plan, and the fastest of them.
//
// Kinds  First kind: the whole step, kept as one chunk. Second kind: chunks as long as they fit into all,
//        half or a quarter of the memory; the first chunks are kept as long as the rest of the memory has
//        space. Third kind: one kept chunk at the beginning, so long that just enough memory is left for the
//        chunks after it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "evenkeel/budget/block_loads.h"
#include "evenkeel/budget/chunk_planner.h"
#include "evenkeel/step/decide.h"

namespace evenkeel::internal {

// A candidate. If it has no chunks, nothing fits.
struct StepCandidate {
  std::vector<Chunk> chunks;
  double seconds = 0;          // without the backward pass of the part that is not kept
  double recomputed_part = 0;  // the part of the step that is not kept

  // The total seconds, if the backward pass of the whole step with nothing kept would take
  // `backward_seconds`.
  double seconds_with(double backward_seconds) const {
    return recomputed_part > 0 ? seconds + recomputed_part * backward_seconds : seconds;
  }
};

class OnePlan {
 public:
  OnePlan(ByteModel& model, const DecisionOptions& options, int num_ranks);

  void read(const StepInputs& in);
  // From now on, candidates are for this plan.
  void follow(const StepPlan& plan, const LayerPlacement& homes) {
    loads_.follow(plan);
    foreign_.read(plan, homes);
  }
  // From now on, candidates are for plain EP. Every expert must have only one home.
  void stay_home(const Counts& counts) {
    loads_.stay_home(counts);
    foreign_.clear();
  }

  // Each of these functions replaces best(). find_forward() tries the candidates that do not keep the whole
  // step as one chunk. With `keep_all` it tries only those that keep all chunks for backward.
  void find_kept_whole();
  void find_forward(bool keep_all, double backward_seconds);
  void find_backward();
  // Like find_forward(), for an executor with plans_chunks: chunks of whole blocks, the same in both passes.
  void find_runs();
  // Estimates the seconds of the backward pass if nothing is kept.
  double estimate_backward_seconds();
  // Predicts the seconds of a candidate's chunks; in backward these are the chunks that were not kept.
  void time(StepPass pass, StepCandidate& candidate) const;

  StepCandidate& best() { return best_; }
  bool keeps() const;
  bool cuts_exactly() const { return options_.memory.rule.kind == ChunkRule::Kind::exact; }

 private:
  bool cut(ChunkUse use, std::vector<Chunk>& chunks);
  bool cut_by_rule(ChunkUse use, std::vector<Chunk>& chunks);
  std::int64_t count_by_rule(ChunkUse use) const;
  ChunkLoad covering_load(RankId rank, const Chunk& chunk) const;
  void find_chunks(std::int64_t part, bool keep_all, double backward_seconds);
  void find_kept_prefix(std::int64_t most_behind, double backward_seconds);
  bool keeps_prefix(int blocks, std::int64_t most_behind);
  void take_trial_if_faster(double backward_seconds);
  bool fits_whole() const;
  bool weights_fit_in_transit(ChunkUse use) const;
  void keep_what_fits();
  bool can_keep_next(const Chunk& chunk);
  bool lengthen_recomputed();
  bool cut_behind(int block);
  bool set_backward_limits();
  const ForeignLoad& foreign(RankId rank) const { return foreign_.loads()[rank.offset()]; }
  ChunkLimits limits(ChunkUse use) const { return {model_, use, foreign_.loads(), limits_}; }
  StepSeconds seconds(StepPass pass) const {
    return {pass, options_.expert, options_.memory.cost, loads_, units(), foreign_.transfers()};
  }
  std::int64_t units() const { return options_.plans_chunks ? loads_.num_blocks() : options_.units; }
  std::int64_t block_units() const { return units() / loads_.num_blocks(); }

  ByteModel& model_;
  const DecisionOptions& options_;
  std::span<const RankMemory> memories_;
  BlockLoads loads_;  // loads under the plan
  ForeignLoads foreign_;
  // Reused, so that a step does not allocate.
  std::vector<std::int64_t> tokens_, limits_, kept_, kept_with_, most_;  // by rank
  StepCandidate best_, trial_;
};

}  // namespace evenkeel::internal
