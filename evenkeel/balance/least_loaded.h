// Least-loaded assignment: splits the experts' assignments over ranks so that no rank holds more than its
// capacity, moving as little as a greedy order allows.
//
// Problem     Given the experts' loads and homes, a plan whose ranks stay at or below
//             capacity = floor(capacity_factor * total / P), with pieces of at least min_segment.
// Method      Takes experts by decreasing load, equal loads by ascending id. Home takes what fits beside the
//             home loads still to come; the rest goes, piece by piece, to the rank that is least loaded (work
//             given and work to come, lowest rank first). A piece below min_segment is made only if it is all
//             that remains; if no piece can be made, the whole rest is forced on the least loaded rank, over
//             its capacity. Everything stays home if the largest load of an expert / the mean load of experts
//             is below imbalance_threshold, if there are fewer assignments than ranks, and on one rank.
// Cost        O(E B + S P) for S spilled pieces and B bytes in the largest load, O(E B + P + S log P) on many
//             ranks; no allocation after the first call of a shape. At most 2 E + P segments with one home an
//             expert.
// Guarantee   Every assignment in exactly one segment. A rank is above capacity only by a forced piece. No
//             bound on transfers.
// Options     capacity_factor, min_segment, imbalance_threshold. base_load counts as work already given, and
//             in the total that sets the capacity; the imbalance test sees the experts' loads alone.
// Copies      An expert with several homes counts as several experts with an even share each. They are taken
//             one after the other, in the order's position of the largest share.
// Source      LLEP (arXiv 2601.17111), Algorithms 2-4; readings: docs/algorithms.md#least-loaded.
#pragma once

#include <vector>

#include "evenkeel/balance/planner.h"

namespace evenkeel {

class LeastLoaded final : public Planner {
 public:
  explicit LeastLoaded(const PlannerOptions& options) : options_(options) {}

  std::string_view name() const override { return "least-loaded"; }
  void plan(const Counts& counts, const LayerPlacement& placement, StepPlan& plan,
            std::span<const std::int64_t> base_load = {}) override;

  // Reserves all memory that planning a shape needs; plan() does so itself.
  void reserve(int num_experts, int num_ranks);

 private:
  bool stays_home(const Counts& counts) const;
  void begin(const Counts& counts, const LayerPlacement& placement, std::span<const std::int64_t> base_load);
  void sort_experts();
  void assign(std::int64_t share, RankId home, StepPlan& plan);
  void spill(std::int64_t rest, RankId home, StepPlan& plan);
  RankId least_loaded_other(RankId home) const;
  void commit(RankId rank, std::int64_t assignments);
  void build_tree();
  RankId lighter(RankId a, RankId b) const;

  struct LoadedExpert {
    std::int64_t load;  // that of its largest share
    ExpertId expert;
  };

  PlannerOptions options_;
  std::int64_t capacity_ = 0;
  IndexedVector<RankId, std::int64_t> committed_;  // given so far, and home loads still to come
  std::vector<RankId> tree_;         // with many ranks: a node is the less committed of its two children
  std::vector<LoadedExpert> order_;  // by decreasing load, equal ones by ascending id
  std::vector<LoadedExpert> sorting_;
};

}  // namespace evenkeel
