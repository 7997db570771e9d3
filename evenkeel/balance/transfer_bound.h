// How few weight transfers any plan needs that keeps every rank at or below a given load.
//
// Problem     Given homes, loads and a worst rank load W, a number that no plan with ranks at most W beats.
// Method      The largest of three counts. With `balance` a rank's home load - W:
//             Groups     Ranks joined by transfers keep their work among them, so the balances of such a
//                        group sum to at most 0. n ranks in G groups take at least n - G transfers; G is the
//                        most groups the balances allow, found over all subsets up to 12 unbalanced ranks,
//                        above that bounded by pairs that match and triples.
//             Senders    A rank's t transfers take away at most what its t largest pieces hold.
//             Receivers  A rank's t transfers bring at most the t largest experts of other ranks; all ranks
//                        together may stay P W - total short.
//             With experts of several homes, where work also changes ranks without a transfer, the count of
//             receivers alone, each of them filled up to W.
// Cost        O(3^n) up to 12 unbalanced ranks, O(P E) beyond.
// Guarantee   A lower bound for every min_segment; not always attained.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "evenkeel/plan/counts.h"
#include "evenkeel/plan/placement.h"

namespace evenkeel {

// `worst_load` and `base_load` as a planner sees them: a rank's load includes its base load.
std::int64_t transfer_lower_bound(const Counts& counts, const LayerPlacement& placement,
                                  std::int64_t worst_load, std::span<const std::int64_t> base_load = {});

// The same, reusing its memory: no allocation after the first call of a shape.
class TransferBound {
 public:
  std::int64_t of(const Counts& counts, const LayerPlacement& placement, std::int64_t worst_load,
                  std::span<const std::int64_t> base_load);

  void reserve(const LayerPlacement& placement);

 private:
  __extension__ using Wide = __int128;  // sums of balances over many ranks

  void begin(std::int64_t worst_load, std::span<const std::int64_t> base_load);
  std::int64_t of_copies();
  std::int64_t groups();
  std::int64_t groups_over_subsets();
  std::int64_t groups_by_size();
  std::int64_t matching_pairs() const;
  std::int64_t senders();
  std::int64_t transfers_away(std::size_t rank, Wide largest);
  std::int64_t receivers();
  void add_received(std::size_t rank);
  std::int64_t count_largest_pieces(Wide wanted);

  std::size_t ranks() const { return static_cast<std::size_t>(placement_->num_ranks()); }
  Wide balance(std::size_t rank) const { return native_[rank] - space_[rank]; }

  const Counts* counts_ = nullptr;  // while counting
  const LayerPlacement* placement_ = nullptr;
  std::vector<Wide> space_;   // [P], what a rank may hold beside its base load
  std::vector<Wide> native_;  // [P], all loads of the experts at home there
  Wide slack_ = 0;            // what all ranks may stay short together
  std::vector<Wide> open_;    // balances other than 0
  std::vector<Wide> sum_;     // by subset of open_
  std::vector<std::int64_t> most_;
  std::vector<Wide> excess_, spare_;
  std::vector<Wide> pieces_;
  std::vector<ExpertId> by_load_;
};

}  // namespace evenkeel
