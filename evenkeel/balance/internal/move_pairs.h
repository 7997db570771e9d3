// Which moves go from one rank to another: a hash table of their pairs of ranks.
//
// Cost        O(1) a question and a move added. No allocation once reserved.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

#include "evenkeel/base/index.h"

namespace evenkeel::internal {

class MovePairs {
 public:
  static constexpr std::uint32_t none = static_cast<std::uint32_t>(-1);

  void reserve(std::size_t moves) {
    before_.reserve(moves);
    used_.reserve(moves);
    if (places_.size() < 2 * moves) places_.resize(std::bit_ceil(2 * moves));
  }
  void clear() {
    for (std::size_t place : used_) places_[place] = {};
    used_.clear();
    before_.clear();
  }
  // Where a pair is kept, until the next one is wanted.
  std::size_t place_of(RankId from, RankId to) {
    if (2 * (used_.size() + 1) > places_.size()) grow();
    const std::size_t at = find(key(from, to));
    if (places_[at].key == 0) {
      places_[at].key = key(from, to);
      used_.push_back(at);
    }
    return at;
  }
  // The next move, number 0, 1, 2 and so on, is of that pair.
  void add(std::size_t place) {
    before_.push_back(places_[place].latest);
    places_[place].latest = static_cast<std::uint32_t>(before_.size() - 1);
  }
  // The latest move from a rank to another one, and the one of the same ranks before it; none where there is
  // none.
  std::uint32_t latest(std::size_t place) const { return places_[place].latest; }
  std::uint32_t latest(RankId from, RankId to) const { return latest(find(key(from, to))); }
  std::uint32_t before(std::uint32_t move) const { return before_[move]; }

 private:
  struct Place {
    std::uint64_t key = 0;  // 0: free
    std::uint32_t latest = none;
  };

  static std::uint64_t key(RankId from, RankId to) {
    return ((static_cast<std::uint64_t>(from.offset()) << 32) | to.offset()) + 1;
  }
  std::size_t find(std::uint64_t key) const {
    const std::size_t mask = places_.size() - 1;
    std::size_t at = (key * 0x9e3779b97f4a7c15ULL >> 20) & mask;
    while (places_[at].key != 0 && places_[at].key != key) at = (at + 1) & mask;
    return at;
  }
  void grow() {
    std::vector<Place> few(std::bit_ceil(4 * (used_.size() + 1)));
    few.swap(places_);
    for (std::size_t& place : used_) {
      const std::size_t at = find(few[place].key);
      places_[at] = few[place];
      place = at;
    }
  }

  std::vector<Place> places_;      // a power of two
  std::vector<std::size_t> used_;  // of places_
  std::vector<std::uint32_t> before_;
};

}  // namespace evenkeel::internal
