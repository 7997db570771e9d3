// A pool of ranks and experts, filled and levelled from nothing: LevelSearch, and before it who gets copies.
//
// Method      copies to whichever expert has the largest share of any recording, as for one recording. Where
//             slots are few, then one copy from every expert to every other, as long as that helps.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "evenkeel/placement/internal/pool/copy_counts.h"
#include "evenkeel/placement/internal/pool/level_search.h"

namespace evenkeel::internal {

class LevelPool {
 public:
  // Until no rank is above `target`, or as far as the search goes. False where the pool is too narrow for an
  // expert to be on a rank once; nothing is placed then.
  bool solve(const LevelSearch::Pool& pool, float target, const Deadline& deadline);
  float heaviest_load() const { return heaviest_; }
  std::span<const std::int32_t> expert_in() const { return expert_in_; }

 private:
  bool search(const LevelSearch::Pool& pool, std::span<const std::int32_t> copies, float target,
              const Deadline& deadline);
  void vary_copies(const LevelSearch::Pool& pool, float target, const Deadline& deadline);

  std::vector<double> peaks_;  // [E] the largest share of the recordings
  std::vector<FixedLoad> fixed_;
  CopyCounts counts_;
  LevelSearch search_;
  std::vector<std::int32_t> copies_;     // [E]
  std::vector<std::int32_t> expert_in_;  // of the best so far
  float heaviest_ = 0;
};

}  // namespace evenkeel::internal
