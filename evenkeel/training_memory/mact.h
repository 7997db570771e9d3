// Memory-aware chunk tuning: finds into how many chunks the received rows of a step must be cut so that one
// chunk fits.
//
// Problem   Given are the number of rows that a rank may hold at once (s'_max, Eq. 8), the number of rows
//           that the fullest rank received (s'', Eq. 9), and the chunk counts that an implementation supports
//           (the bins). Which chunk count should be used?
// Method    Compute c = ceil(s'' / s'_max), then take the smallest bin that is at least c. This is our
//           reading of the paper's "the large bin that is closest to c", because a smaller bin would not fit.
// Cost      O(bins).
// Guarantee If `promised`, a chunk of ceil(s'' / chunks) rows is at most s'_max, *if chunks are of equal size
//           on every rank*. The paper cuts a rank's own tokens into equal parts, but this does not cut the
//           rows received from other ranks into equal parts. If c is beyond the largest bin, the largest bin
//           is chosen, and `promised` is false.
// Source    MemFine (arXiv 2511.21431v4), section 4.2, equations 8 and 9.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace evenkeel {

struct MactChoice {
  std::int64_t least_chunks = 0;  // c of Eq. 9; 0 if no count is enough, because not even one row fits
  std::int64_t chunks = 1;        // the chosen bin
  bool promised = true;

  friend bool operator==(const MactChoice&, const MactChoice&) = default;
};

// `received` is the number of rows of the fullest rank. All ranks run with the count that this rank needs.
// `bins` must be ascending and at least 1. Throws InvalidArgument if there are no bins, if they do not
// ascend, or if `received` is below 0.
MactChoice mact(std::int64_t received, std::int64_t most_received, std::span<const std::int64_t> bins);
// Chooses the smallest bin that is at least `least_chunks`. If `least_chunks` is 0 (no count is enough),
// chooses the largest bin, which is not promised to fit.
MactChoice choose_bin(std::int64_t least_chunks, std::span<const std::int64_t> bins);

}  // namespace evenkeel
