// Counts the load that a chunk of a step puts on each rank and the rows it sends between ranks. Assignments
// are dealt token by token, as in the layer.
//
// Exact     If tokens are known, rows, positions and everything that chunk_buffers.h counts are exact. If
//           only loads are known, a rank is assumed to send one row per assignment to another rank, up to the
//           number of its tokens. That is too many if a token goes to a rank for several experts. In two
//           levels, the ranks of a node are also assumed to need tokens independently of each other.
// Cost      O(assignments + P E + P x split experts); reuses its memory.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "evenkeel/plan/chunk_buffers.h"
#include "evenkeel/plan/deal.h"
#include "evenkeel/plan/nodes.h"
#include "evenkeel/plan/step_plan.h"
#include "evenkeel/sim/steps.h"

namespace evenkeel {

struct Traffic {
  std::vector<ChunkLoad> loads;         // [P]
  std::vector<std::int64_t> rows;       // [P, P] by source rank; rows on the diagonal stay on the rank
  std::vector<std::int64_t> positions;  // [P, P] by source rank
  // Only in two levels, [P, P] by sender: rows sent to the first rank that they reach, and rows passed on
  // from there.
  std::vector<std::int64_t> direct, passed_on;
};

class TrafficCounter {
 public:
  // If `nodes` is given, rows are sent in two levels.
  explicit TrafficCounter(Nodes nodes = {}) : nodes_(std::move(nodes)) {}

  // `chunk` has the chunk's tokens and counts. `plan` is the chunk's plan. `whole` is the plan of the whole
  // step; it tells which experts are split.
  void count(const LayerTokens& chunk, const StepPlan& whole, const StepPlan& plan,
             const LayerPlacement& homes, Traffic& traffic);

 private:
  // `rank` computes the next `count` assignments that a source has to a split expert.
  struct Piece {
    std::int32_t rank;
    std::int64_t count;
  };
  struct Move {
    std::int32_t from;
    Piece piece;
  };
  // Experts [begin, end), all computed by one rank.
  struct ExpertRange {
    std::int32_t rank;
    std::size_t begin, end;
  };
  struct Cursor {
    std::span<const Piece> pieces;
    std::int64_t done = 0;  // number of assignments of the first piece already dealt

    std::int32_t next() {
      if (done == pieces.front().count) {
        pieces = pieces.subspan(1);
        done = 0;
      }
      ++done;
      return pieces.front().rank;
    }
  };
  std::span<const Piece> pieces_of(std::size_t split, RankId source) const {
    return group_of(pieces_, piece_begin_, split * seen_.size() + source.offset());
  }
  void deal(const Counts& counts, const StepPlan& plan);
  void deal_split(const Counts& counts, ExpertId expert, std::span<const Segment> segments,
                  std::size_t ranks);
  void count_positions(const Counts& counts, Traffic& traffic) const;
  void count_rows(const LayerTokens& chunk, RankId source, Traffic& traffic);
  void pass_on(RankId source, Traffic& traffic);
  void estimate_passed_on(RankId source, std::int64_t tokens, Traffic& traffic) const;
  void count_split(const Counts& counts, const StepPlan& whole, const LayerPlacement& homes,
                   Traffic& traffic) const;

  Nodes nodes_;
  // [nodes] ranks that need the token's row; bit i is the node's rank i
  std::vector<std::uint32_t> wanted_by_;
  SplitDeal split_deal_;
  std::vector<std::int32_t> rank_of_;        // [E] the only rank, or -1 - index in split_experts_
  std::vector<ExpertId> split_experts_;      // experts that several ranks compute
  std::vector<ExpertRange> unsplit_ranges_;  // ranges of the other experts
  std::vector<Move> moves_;                  // of one expert of split_experts_
  std::vector<std::size_t> from_;            // [P + 1] where each source's moves begin
  std::vector<Piece> pieces_;                // by expert of split_experts_, then by source rank
  std::vector<std::size_t> piece_begin_;     // [split experts x P + 1]
  std::vector<Cursor> cursors_;              // for one source: a cursor for each of split_experts_
  std::vector<std::int64_t> seen_;           // [P] the last token whose row was sent to the rank
};

}  // namespace evenkeel
