// Memory-aware chunk tuning: how many chunks a step's received rows need so that one chunk fits.
//
// Problem   Given are the rows that a rank may hold at once (s'_max, Eq. 8), the rows that the fullest rank
//           received (s'', Eq. 9), and the chunk counts that an implementation supports (the bins). Which
//           count?
// Method    c = ceil(s'' / s'_max), then the smallest bin that is at least c. This is how we read the paper's
//           "the large bin that is closest to c": a smaller bin would not fit.
// Cost      O(bins).
// Guarantee If `promised`, a chunk of ceil(s'' / chunks) rows is at most s'_max, *if chunks are of equal size
//           on every rank*. The paper cuts a rank's own tokens into equal parts; this does not cut the rows
//           from other ranks into equal parts. If c is beyond the largest bin, the largest bin is chosen, and
//           `promised` is false.
// Source    MemFine (arXiv 2511.21431v4), section 4.2, equations 8 and 9.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace evenkeel {

struct MactChoice {
  std::int64_t least_chunks = 0;  // c of Eq. 9; 0: no count is enough, since not even one row fits
  std::int64_t chunks = 1;        // the chosen bin
  bool promised = true;

  friend bool operator==(const MactChoice&, const MactChoice&) = default;
};

// `received` is the fullest rank's; all ranks run with the count that it needs. `bins` ascend from at least
// 1. Throws InvalidArgument if there are no bins, if they do not ascend, or if `received` is below 0.
MactChoice mact(std::int64_t received, std::int64_t most_received, std::span<const std::int64_t> bins);
// Chooses the smallest bin of at least `least_chunks`. If that is 0 (no number of chunks is enough), the
// largest bin, not promised to fit.
MactChoice choose_bin(std::int64_t least_chunks, std::span<const std::int64_t> bins);

}  // namespace evenkeel
