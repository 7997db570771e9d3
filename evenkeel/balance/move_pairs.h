// Which moves go from one rank to another: a hash table of their pairs of ranks, for many ranks.
//
// Cost        O(1) a question and a move added. No allocation once reserved.
#pragma once

#include <cstdint>
#include <vector>

#include "evenkeel/base/index.h"

namespace evenkeel {

class MovePairs {
 public:
  static constexpr std::uint32_t none = static_cast<std::uint32_t>(-1);

  void reserve(std::size_t moves);
  void clear();
  // Of the next move, number 0, 1, 2 and so on.
  void add(RankId from, RankId to);
  // The latest move from a rank to another one, and the one of the same ranks before it; none where there is
  // none.
  std::uint32_t latest(RankId from, RankId to) const { return places_[find(key(from, to))].latest; }
  std::uint32_t before(std::uint32_t move) const { return before_[move]; }

 private:
  struct Place {
    std::uint64_t key = 0;  // 0: free
    std::uint32_t latest = none;
  };

  static std::uint64_t key(RankId from, RankId to) {
    return ((static_cast<std::uint64_t>(from.offset()) << 32) | to.offset()) + 1;
  }
  std::size_t find(std::uint64_t key) const;
  void grow();

  std::vector<Place> places_;      // a power of two
  std::vector<std::size_t> used_;  // of places_
  std::vector<std::uint32_t> before_;
};

}  // namespace evenkeel
