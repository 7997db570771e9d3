// The deal: which assignments fill the quotas of a step plan. It is the same for every planner.
//
// Rule     Of an expert's assignments, first those whose token is already on the segment's rank stay there;
//          the rest, in order of source rank, token and position in the top-k, fill what the segments leave
//          open, in the order of the segments.
// Cost     O(E + P S) for S experts that are split over ranks; reuses its memory.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "evenkeel/plan/counts.h"
#include "evenkeel/plan/split_deal.h"
#include "evenkeel/plan/step_plan.h"

namespace evenkeel {

// One rank's view of the deal of one step.
class Deal {
 public:
  // The next `count` of this rank's assignments to an expert are computed by `rank`, where `before` of this
  // rank's assignments to experts and pieces before these go as well.
  struct Piece {
    RankId rank;
    std::int64_t count;
    std::int64_t before;
  };

  // `counts` must know its sources, and a rank compute fewer than 2^31 assignments.
  void make(const Counts& counts, const StepPlan& plan, RankId me);
  // Takes the memory that any plan of this one's placement needs; make() does so itself.
  void reserve(const StepPlan& plan);

  std::size_t num_experts() const { return piece_begin_.size() - 1; }
  // Where this rank's assignments to an expert go, in their order.
  std::span<const Piece> pieces(ExpertId expert) const {
    return std::span(pieces_).subspan(piece_begin_[expert.offset()],
                                      piece_begin_[expert.offset() + 1] - piece_begin_[expert.offset()]);
  }
  // The experts that this rank computes, ascending.
  std::span<const ExpertId> experts_here() const { return experts_here_; }
  // How many assignments each source rank sends here for each of experts_here(), [experts here][P].
  std::span<const std::int32_t> arrivals() const { return arrivals_; }
  // For experts_here()[index] alone.
  std::span<const std::int32_t> arrivals(std::size_t index) const {
    return arrivals().subspan(index * sent_.size(), sent_.size());
  }
  // Assignments of this rank that each rank computes, and of each rank that this rank computes.
  std::span<const std::int64_t> sent() const { return sent_; }
  std::span<const std::int64_t> received() const { return received_; }

 private:
  void deal_whole(const Counts& counts, ExpertId expert, RankId home);
  void deal_split(const Counts& counts, std::span<const Segment> segments, ExpertId expert);
  void move(RankId from, RankId to, std::int64_t count);
  std::span<std::int32_t> open_arrivals(ExpertId expert);

  RankId me_;
  std::vector<std::size_t> piece_begin_;  // [E + 1]
  std::vector<Piece> pieces_;
  std::vector<ExpertId> experts_here_;
  std::vector<std::int32_t> arrivals_;  // [experts_here][P]
  std::vector<std::int64_t> sent_;
  std::vector<std::int64_t> received_;
  SplitDeal split_;
  std::span<std::int32_t> current_arrivals_;
};

}  // namespace evenkeel
