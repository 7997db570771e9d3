#include "evenkeel/memory/block_table.h"

#include <algorithm>
#include <array>

namespace evenkeel {

namespace {

// Of block `block` of `blocks` equal parts of `tokens`, the first.
std::int64_t first_token(std::int64_t tokens, int block, int blocks) {
  return tokens * block / blocks;
}

}  // namespace

void BlockTable::fill(RankId rank, std::span<const std::int32_t> experts, int k,
                      const LayerPlacement& placement) const {
  std::ranges::fill(part(rank), 0);
  const auto tokens = static_cast<std::int64_t>(experts.size()) / k;
  for (int block = 0; block < blocks_; ++block) {
    const auto assigned = assignments(rank, block);
    const auto chose = choosers(rank, block);
    const auto visited = visitors(rank, block);
    for (std::int64_t token = first_token(tokens, block, blocks_);
         token < first_token(tokens, block + 1, blocks_); ++token) {
      const auto chosen = experts.subspan(static_cast<std::size_t>(token * k), static_cast<std::size_t>(k));
      for (std::size_t i = 0; i < chosen.size(); ++i) {
        if (chosen[i] < 0 || chosen[i] >= experts_) continue;
        const ExpertId expert(chosen[i]);
        ++assigned[expert.offset()];
        const auto earlier = chosen.first(i);
        if (std::ranges::find(earlier, chosen[i]) != earlier.end()) continue;
        ++chose[expert.offset()];
        for (RankId home : placement.homes(expert)) {
          const bool seen = std::ranges::any_of(earlier, [&](std::int32_t other) {
            return other >= 0 && other < experts_ && placement.is_home(ExpertId(other), home);
          });
          if (!seen) ++visited[home.offset()];
        }
      }
    }
  }
}

void BlockTable::sum(Counts& counts) const {
  counts.resize(ranks_, experts_);
  const auto experts = static_cast<std::size_t>(experts_);
  // A step has fewer than 2^31 assignments: sums widen when they are whole, some experts at a time.
  std::array<std::int32_t, 64> sums;
  for (RankId rank : indices<RankId>(ranks_)) {
    const auto row = counts.rows().subspan(rank.offset() * experts, experts);
    for (std::size_t first = 0; first < experts; first += sums.size()) {
      const std::size_t some = std::min(sums.size(), experts - first);
      sums.fill(0);
      for (int block = 0; block < blocks_; ++block) {
        const auto assigned = assignments(rank, block).subspan(first, some);
        for (std::size_t e = 0; e < some; ++e) sums[e] += assigned[e];
      }
      std::copy_n(sums.begin(), some, row.begin() + static_cast<std::ptrdiff_t>(first));
    }
  }
  counts.sum_loads();
}

}  // namespace evenkeel
