// The step plan: how many assignments of each expert each rank computes, and which experts' weights are sent.
//
// Numbering   The assignments of an expert are numbered 0..load-1. A segment [begin, end) of an expert is a
//             quota: its rank computes end - begin of them. The deal (plan/deal.h) decides which ones, by the
//             same rule for every planner.
// Example     Expert 5 has 1000 assignments and its home is rank 1. The plan
//                 segments(5) = { rank 1 [0, 600), rank 3 [600, 1000) }
//             lets rank 3 compute 400 of them, so transfers() holds {expert 5, from 1, to 3}.
// Invariants  The segments of an expert are in order, not empty, and cover [0, load) exactly; an expert
//             without assignments has none. One rank may hold two segments of an expert. transfers() lists
//             each pair of an expert and a rank that computes it without being its home once, in the order in
//             which the planner made them. check_plan() (plan/check.h) recomputes everything from scratch.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "evenkeel/base/index.h"
#include "evenkeel/plan/placement.h"

namespace evenkeel {

struct Segment {
  RankId rank;
  std::int64_t begin = 0;
  std::int64_t end = 0;

  std::int64_t size() const { return end - begin; }
  friend bool operator==(const Segment&, const Segment&) = default;
};

struct Transfer {
  ExpertId expert;
  RankId from;
  RankId to;

  friend bool operator==(const Transfer&, const Transfer&) = default;
};

// Flat arrays, reused from step to step: filling a plan with the sizes of an earlier one allocates nothing.
class StepPlan {
 public:
  // Empties the plan. `placement` must live until the plan is filled.
  void begin(const LayerPlacement& placement);
  // Begins an expert. Experts come in any order, each at most once.
  void begin_expert(ExpertId expert);
  // Gives the next `count` > 0 assignments of the current expert to a rank.
  void give(RankId rank, std::int64_t count);

  int num_experts() const { return static_cast<int>(first_.size()); }
  int num_ranks() const { return static_cast<int>(rank_loads_.size()); }

  std::span<const Segment> segments(ExpertId expert) const {
    return std::span(segments_).subspan(first_[expert.offset()], count_[expert.offset()]);
  }
  std::span<const Transfer> transfers() const { return transfers_; }
  // Assignments that each rank computes.
  std::span<const std::int64_t> rank_loads() const { return rank_loads_; }
  // The largest load of a rank, including `base_load`, which has one value for each rank or is empty.
  std::int64_t worst_load(std::span<const std::int64_t> base_load) const {
    std::int64_t worst = 0;
    for (std::size_t r = 0; r < rank_loads_.size(); ++r)
      worst = std::max(worst, rank_loads_[r] + (base_load.empty() ? 0 : base_load[r]));
    return worst;
  }
  // True if several ranks compute the expert, or one rank that is not its home.
  bool splits(ExpertId expert, const LayerPlacement& placement) const {
    const auto all = segments(expert);
    return all.size() > 1 || (all.size() == 1 && !placement.is_home(expert, all.front().rank));
  }
  // True if some expert is computed on a rank that is not its home.
  bool spilled() const { return !transfers_.empty(); }
  // An upper bound for plans of this placement, for callers that reserve one item for each segment.
  std::size_t most_segments() const { return most_segments_; }

  friend bool operator==(const StepPlan& a, const StepPlan& b);

 private:
  const LayerPlacement* placement_ = nullptr;  // only while filling
  ExpertId current_;
  std::size_t most_segments_ = 0;
  std::vector<Segment> segments_;
  std::vector<std::size_t> first_;  // [E] into segments_
  std::vector<std::size_t> count_;  // [E]
  std::vector<Transfer> transfers_;
  std::vector<std::int64_t> rank_loads_;
  std::vector<ExpertId> last_given_;  // [P] only while filling
};

}  // namespace evenkeel
