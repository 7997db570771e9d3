// A router's choices for the tokens of one rank.
#pragma once

#include <cstdint>
#include <span>

namespace evenkeel {

// The k choices of each token: expert ids, -1 for none (no assignment), and router weights. A repeated id
// makes two assignments. Both are views, [tokens * k], token by token.
struct TopK {
  std::int64_t tokens = 0;
  int k = 0;
  std::span<const std::int32_t> experts;
  std::span<const float> weights;

  // Tokens [first, first + count).
  TopK part(std::int64_t first, std::int64_t count) const {
    const auto begin = static_cast<std::size_t>(first * k);
    const auto size = static_cast<std::size_t>(count * k);
    return {count, k, experts.subspan(begin, size), weights.subspan(begin, size)};
  }
};

}  // namespace evenkeel
