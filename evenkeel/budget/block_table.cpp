#include "evenkeel/budget/block_table.h"

#include <algorithm>

namespace evenkeel {

namespace {

// Of block `block` of `blocks` equal parts of `tokens`, the first.
std::int64_t first_token(std::int64_t tokens, int block, int blocks) {
  return tokens * block / blocks;
}

}  // namespace

void BlockTable::fill(RankId rank, std::span<const std::int32_t> experts, int k,
                      const LayerPlacement& placement) const {
  const auto tokens = static_cast<std::int64_t>(experts.size()) / k;
  for (int block = 0; block < blocks_; ++block) {
    const auto numbers = of_block(rank, block);
    if (block == 0)
      std::ranges::fill(numbers, 0);
    else
      std::ranges::copy(of_block(rank, block - 1), numbers.begin());
    for (std::int64_t token = first_token(tokens, block, blocks_);
         token < first_token(tokens, block + 1, blocks_); ++token)
      add_token(rank, block,
                experts.subspan(static_cast<std::size_t>(token * k), static_cast<std::size_t>(k)), placement);
  }
}

// One token's choices.
void BlockTable::add_token(RankId rank, int block, std::span<const std::int32_t> chosen,
                           const LayerPlacement& placement) const {
  const auto is_expert = [&](std::int32_t id) { return id >= 0 && id < experts_; };
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    if (!is_expert(chosen[i])) continue;
    const ExpertId expert(chosen[i]);
    const auto homes = placement.homes(expert);
    const auto earlier = chosen.first(i);
    const bool is_first = std::ranges::find(earlier, chosen[i]) == earlier.end();
    ++total(rank, block);
    ++assignments(rank, block)[expert.offset()];
    if (homes.size() == 1) ++home_assignments(rank, block)[homes.front().offset()];
    if (!is_first) continue;
    ++choosers(rank, block)[expert.offset()];
    if (homes.size() == 1) ++home_choosers(rank, block)[homes.front().offset()];
    for (RankId home : homes) {
      const bool seen = std::ranges::any_of(earlier, [&](std::int32_t other) {
        return is_expert(other) && placement.is_home(ExpertId(other), home);
      });
      if (!seen) ++visitors(rank, block)[home.offset()];
    }
  }
}

void BlockTable::sum(Counts& counts) const {
  counts.resize(ranks_, experts_);
  const auto experts = static_cast<std::size_t>(experts_);
  for (RankId rank : indices<RankId>(ranks_))
    std::ranges::copy(assignments(rank, blocks_ - 1), counts.rows().subspan(rank.offset() * experts).begin());
  counts.sum_loads();
}

}  // namespace evenkeel
