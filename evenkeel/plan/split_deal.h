// The deal (deal.h) of one expert that is split over ranks.
//
// Cost     O(P + S) for S segments; reuses its memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "evenkeel/base/check.h"
#include "evenkeel/plan/step_plan.h"

namespace evenkeel {

class SplitDeal {
 public:
  void reserve(std::size_t ranks) {
    quota_.reserve(ranks);
    kept_.reserve(ranks);
  }
  // Of the expert's assignments each rank computes quota(rank).
  void begin(std::span<const Segment> segments, std::size_t ranks) {
    segments_ = segments;
    quota_.assign(ranks, 0);
    for (const Segment& segment : segments) quota_[segment.rank.offset()] += segment.size();
  }
  std::int64_t quota(RankId rank) const { return quota_[rank.offset()]; }

  // Calls move(from, to, count) for all of them, first what stays on its rank; each source rank has
  // `count(source)`.
  template <class Count, class Move>
  void deal(const Count& count, const Move& move) {
    kept_.resize(quota_.size());
    for (RankId rank : indices<RankId>(quota_.size())) {
      kept_[rank.offset()] = std::min<std::int64_t>(count(rank), quota(rank));
      move(rank, rank, kept_[rank.offset()]);
    }
    // kept_ is taken from each rank's segments, earliest first, while the rest runs along both lines.
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
      // The assignments that stayed on `source` are min(count, quota); both are still known.
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
  std::vector<std::int64_t> kept_;  // what stays on its rank and lies in no segment yet
};

}  // namespace evenkeel
