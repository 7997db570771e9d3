// Memory-aware chunk tuning: how many chunks a step's received rows need so that one chunk fits.
//
// Problem    rows a rank may hold at once (s'_max, Eq. 8), rows that the fullest rank received (s'', Eq. 9),
//            and a list of chunk counts that an implementation is prepared for (the bins). Which count?
// Method     c = ceil(s'' / s'_max), then the least bin that is c or more. The paper's words, "the large bin
//            that is closest to c", are read so; a smaller bin would not fit.
// Cost       O(bins).
// Guarantee  Where `promised`, a chunk of ceil(s'' / chunks) rows is at most s'_max, *if chunks are of equal
//            size on every rank*. The paper cuts a rank's own tokens into equal parts, which does not cut
//            what other ranks send into equal parts; and beyond the largest bin nothing is promised: then the
//            largest bin is chosen, and the flag says no.
// Source     MemFine (arXiv 2511.21431v4), section 4.2, equations 8 and 9.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace evenkeel {

struct MactChoice {
  std::int64_t least_chunks = 0;  // c of Eq. 9; 0: no count is enough, since not one row fits
  std::int64_t chunks = 1;        // the bin
  bool promised = true;

  friend bool operator==(const MactChoice&, const MactChoice&) = default;
};

// `received` is that of the fullest rank: all ranks run with the count that it needs. `bins` ascend from 1 or
// more. Throws InvalidArgument: no bins, or bins that do not ascend, or received below 0.
MactChoice mact(std::int64_t received, std::int64_t most_received, std::span<const std::int64_t> bins);
// The bin alone, where the chunks a step needs are known by other means; 0: no count is enough.
MactChoice choose_bin(std::int64_t least_chunks, std::span<const std::int64_t> bins);

}  // namespace evenkeel
