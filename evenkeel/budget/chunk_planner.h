// Cuts a step into chunks that fit every rank.
//
// Problem    Given each rank's limit, cut the step's tokens into the fewest chunks, the same on all ranks.
// Method     From the left, makes each chunk as long as will fit. A chunk is a run of blocks; a block that
//            does not fit whole is cut into equal parts that fit under any routing.
// Guarantee  Every chunk fits, whatever the routing, if one token a rank fits. If the plan splits no expert,
//            the chunks are the fewest of any cut into whole blocks that fit, because every part of a run
//            that fits also fits. If it splits experts, a part may take slightly more than the whole
//            (assignments that stay come first, and a part may have too few of them). In three of 82,100
//            random cases a cut with fewer chunks existed.
// Source     Fine-grained chunk distribution: MemFine (arXiv 2511.21431), Eq. 6 and 7; the rule for cutting
//            is ours.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "evenkeel/budget/block_loads.h"
#include "evenkeel/budget/byte_model.h"

namespace evenkeel {

// A chunk of a step: the part from `begin` / units to `end` / units of each rank's tokens.
struct Chunk {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  bool kept = false;      // tables, rows and activations stay for backward
  bool plain_ep = false;  // runs as plain EP; set only if chunks have plans of their own

  std::int64_t first_token(std::int64_t tokens, std::int64_t units) const { return tokens * begin / units; }
  std::int64_t end_token(std::int64_t tokens, std::int64_t units) const { return tokens * end / units; }
  friend bool operator==(const Chunk&, const Chunk&) = default;
};

// Cuts blocks [begin, num_blocks) into chunks within the limits and appends them. `units` is a multiple of
// the number of blocks, and at least the most tokens of a rank. Returns false and appends nothing if not even
// one token a rank fits.
bool cut_into_chunks(const ChunkLimits& limits, const BlockLoads& loads, int begin, std::int64_t units,
                     std::vector<Chunk>& chunks);

// The end of the longest run of blocks from `begin` that is within the limits; `begin` if not even one is.
int end_of_run(const ChunkLimits& limits, const BlockLoads& loads, int begin);

// The most tokens a rank, up to `most`, that stay within every limit under any routing that the plan of
// `loads` allows; 0 if not even one does.
std::int64_t tokens_of_any_routing(const ChunkLimits& limits, const BlockLoads& loads, std::int64_t most);

// Estimates how many chunks a step would be cut into within the limits, at most `most`, as if every chunk had
// the same share of each rank's load. O(P).
std::int64_t estimated_chunks(const ChunkLimits& limits, const BlockLoads& loads, std::int64_t most);

}  // namespace evenkeel
