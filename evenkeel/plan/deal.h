// The deal decides which rank computes which assignments, so that every quota of a step plan is met. It is
// the same for every planner.
//
// Rule     First, an expert's assignments whose token is already on a segment's rank stay there, up to the
//          rank's quota. The rest, in order of source rank, token and position in the top-k, fill the open
//          parts of the segments, in the segments' order.
// Cost     O(E + P S) for S experts that are split over ranks; reuses its memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "evenkeel/base/check.h"
#include "evenkeel/plan/counts.h"
#include "evenkeel/plan/step_plan.h"

namespace evenkeel {

// The deal of one expert that is split over ranks. O(P + S) for S segments; reuses its memory.
class SplitDeal {
 public:
  void reserve(std::size_t ranks) {
    quota_.reserve(ranks);
    kept_.reserve(ranks);
  }
  // Sets quota(rank), the number of the expert's assignments that each rank computes.
  void begin(std::span<const Segment> segments, std::size_t ranks) {
    segments_ = segments;
    quota_.assign(ranks, 0);
    for (const Segment& segment : segments) quota_[segment.rank.offset()] += segment.size();
  }
  std::int64_t quota(RankId rank) const { return quota_[rank.offset()]; }

  // Calls move(from, to, count) until all assignments are dealt. The first calls are for assignments that
  // stay on their rank. A source rank has `count(source)` assignments.
  template <class Count, class Move>
  void deal(const Count& count, const Move& move) {
    kept_.resize(quota_.size());
    for (RankId rank : indices<RankId>(quota_.size())) {
      kept_[rank.offset()] = std::min<std::int64_t>(count(rank), quota(rank));
      move(rank, rank, kept_[rank.offset()]);
    }
    // Walks along source ranks and segments at the same time. The assignments in kept_ fill their rank's
    // segments, earliest segment first; the rest fill the gaps.
    auto segment = segments_.begin();
    std::int64_t space = 0;
    const auto open_next = [&] {
      EVENKEEL_CHECK(segment != segments_.end());
      std::int64_t& filled = kept_[segment->rank.offset()];
      const std::int64_t local = std::min(filled, segment->size());
      filled -= local;
      space = segment->size() - local;
    };
    for (RankId source : indices<RankId>(quota_.size())) {
      // The assignments that stayed on `source` are min(count, quota). kept_ may already be reduced here.
      std::int64_t rest = count(source) - std::min<std::int64_t>(count(source), quota(source));
      while (rest > 0) {
        while (space == 0) {
          open_next();
          if (space == 0) ++segment;
        }
        const std::int64_t piece = std::min(rest, space);
        move(source, segment->rank, piece);
        rest -= piece;
        space -= piece;
        if (space == 0) ++segment;
      }
    }
  }

 private:
  std::span<const Segment> segments_;
  std::vector<std::int64_t> quota_;
  std::vector<std::int64_t> kept_;  // assignments that stay on their rank and are in no segment yet
};

// One rank's view of the deal of one step.
class Deal {
 public:
  // The next `count` assignments of this rank to an expert are computed by `rank`. `before` is how many of
  // this rank's assignments, at earlier experts and pieces, go to `rank`.
  struct Piece {
    RankId rank;
    std::int64_t count;
    std::int64_t before;
  };

  // `counts` must have source ranks. A rank must compute fewer than 2^31 assignments.
  void make(const Counts& counts, const StepPlan& plan, RankId me);
  // Reserves the memory for any plan of the same placement; make() calls it.
  void reserve(const StepPlan& plan);

  std::size_t num_experts() const { return piece_begin_.size() - 1; }
  // The ranks that compute this rank's assignments to an expert, in the order of the assignments.
  std::span<const Piece> pieces(ExpertId expert) const {
    return group_of(pieces_, piece_begin_, expert.offset());
  }
  // The experts that this rank computes, ascending.
  std::span<const ExpertId> experts_here() const { return experts_here_; }
  // The number of assignments that each source rank sends here for each of experts_here(), [experts_here][P].
  std::span<const std::int32_t> arrivals() const { return arrivals_; }
  // The same for experts_here()[index] alone.
  std::span<const std::int32_t> arrivals(std::size_t index) const {
    return arrivals().subspan(index * sent_.size(), sent_.size());
  }
  // sent()[r] counts this rank's assignments that rank r computes; received()[r] counts rank r's assignments
  // that this rank computes.
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
