// Where a step is cut into chunks, so that each fits every rank.
//
// Problem    Given what fits each rank, cut the step's tokens into the fewest chunks, the same for all ranks.
// Method     From the left, each chunk as long as it fits. A chunk is a run of blocks; a block that does not
//            fit whole is cut into equal parts that fit under any routing.
// Guarantee  Every chunk fits, whatever the routing, if one token a rank does. No cut into whole blocks that
//            fit has fewer chunks, where the plan splits no expert: then a part of what fits fits. Where it
//            does, a part may need a little more than the whole (assignments that stay come first, and a part
//            may have too few of them); three of 82,100 random cases had a cut with fewer chunks.
// Source     Fine-grained chunk distribution: MemFine (arXiv 2511.21431), Eq. 6 and 7; the choice is ours.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "evenkeel/budget/block_loads.h"
#include "evenkeel/budget/byte_model.h"

namespace evenkeel {

// Of each rank's tokens, a step's chunk is the part from `begin` / units to `end` / units.
struct Chunk {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  bool kept = false;   // tables, rows and activations stay for backward
  bool stays = false;  // nothing moves in it, where chunks have plans of their own

  std::int64_t first_token(std::int64_t tokens, std::int64_t units) const { return tokens * begin / units; }
  std::int64_t end_token(std::int64_t tokens, std::int64_t units) const { return tokens * end / units; }
  friend bool operator==(const Chunk&, const Chunk&) = default;
};

// Cuts blocks [begin, num_blocks) into chunks within the limits; appends them. `units` is a whole multiple of
// the number of blocks, and no less than the most tokens of a rank. False, with nothing appended, if not even
// one token a rank fits.
bool cut_into_chunks(const ChunkLimits& limits, const BlockLoads& loads, int begin, std::int64_t units,
                     std::vector<Chunk>& chunks);

// The end of the longest run of blocks from `begin` that is within the limits; `begin` if not even one is.
int end_of_run(const ChunkLimits& limits, const BlockLoads& loads, int begin);

// As many of `most` tokens a rank as are within each limit wherever the plan of the loads sends them; 0 if
// not even one is.
std::int64_t tokens_of_any_routing(const ChunkLimits& limits, const BlockLoads& loads, std::int64_t most);

// About how many chunks a step would be cut into within the limits, before any boundary is looked at: as if
// every chunk had the same share of each rank's load. No more than `most`. O(P).
std::int64_t estimated_chunks(const ChunkLimits& limits, const BlockLoads& loads, std::int64_t most);

}  // namespace evenkeel
