#include "evenkeel/budget/block_table.h"

#include <algorithm>

namespace evenkeel {

namespace {

// The first token of block `block`, where `tokens` are cut into `blocks` equal parts.
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

void BlockTable::fill_counts(std::span<const std::int64_t> counts, const LayerPlacement& placement) const {
  std::ranges::fill(numbers_, 0);
  std::size_t at = 0;
  for (RankId rank : indices<RankId>(ranks_))
    for (int block = 0; block < blocks_; ++block) {
      if (block > 0) std::ranges::copy(of_block(rank, block - 1), of_block(rank, block).begin());
      for (ExpertId expert : indices<ExpertId>(experts_)) {
        const auto count = static_cast<std::int32_t>(counts[at++]);
        total(rank, block) += count;
        assignments(rank, block)[expert.offset()] += count;
        choosers(rank, block)[expert.offset()] += count;
        const auto homes = placement.homes(expert);
        for (RankId home : homes) visitors(rank, block)[home.offset()] += count;
        if (homes.size() > 1) continue;
        home_assignments(rank, block)[homes.front().offset()] += count;
        home_choosers(rank, block)[homes.front().offset()] += count;
      }
    }
}

void BlockTable::fill_run(const BlockTable& from, int begin, int end) const {
  for (RankId rank : indices<RankId>(ranks_)) {
    const auto numbers = part(rank);
    std::ranges::copy(from.of_block(rank, end - 1), numbers.begin());
    if (begin == 0) continue;
    const auto before = from.of_block(rank, begin - 1);
    for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] -= before[i];
  }
}

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
