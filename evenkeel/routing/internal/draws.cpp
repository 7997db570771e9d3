#include "evenkeel/routing/internal/draws.h"

#include <algorithm>
#include <cmath>

namespace evenkeel::internal {

namespace {

bool contains(std::span<const std::int32_t> items, std::int32_t item) {
  return std::find(items.begin(), items.end(), item) != items.end();
}

}  // namespace

void Draws::distinct(int count, std::span<std::int32_t> out) {
  // Floyd's algorithm needs one draw for each item, and no list of the remaining numbers.
  const std::size_t wanted = out.size();
  for (std::size_t i = 0; i < wanted; ++i) {
    const std::size_t last = static_cast<std::size_t>(count) - wanted + i;
    const auto drawn = static_cast<std::int32_t>(below(last + 1));
    out[i] = contains(out.first(i), drawn) ? static_cast<std::int32_t>(last) : drawn;
  }
  shuffle(out);
}

WeightedExperts::WeightedExperts(std::span<const double> weights) {
  const double largest = *std::max_element(weights.begin(), weights.end());
  std::uint64_t sum = 0;
  for (double weight : weights) {
    const double steps = std::floor(weight / largest * 0x1p32 + 0.5);
    sum += static_cast<std::uint64_t>(std::max(steps, 1.0));
    cumulative_.push_back(sum);
  }
}

void WeightedExperts::distinct(Draws& draws, std::span<std::int32_t> out) const {
  // A repeated expert is drawn again, so that the other experts keep their proportions. If the experts drawn
  // so far have nearly all the weight, the remaining experts are scanned instead.
  constexpr int patience = 16;
  for (std::size_t i = 0; i < out.size(); ++i) {
    const auto drawn = out.first(i);
    std::int32_t expert = -1;
    for (int attempt = 0; attempt < patience && expert < 0; ++attempt) {
      const std::uint64_t at = draws.below(cumulative_.back());
      const auto found = std::upper_bound(cumulative_.begin(), cumulative_.end(), at);
      const auto candidate = static_cast<std::int32_t>(found - cumulative_.begin());
      if (!contains(drawn, candidate)) expert = candidate;
    }
    out[i] = expert >= 0 ? expert : among_rest(draws, drawn);
  }
}

std::int32_t WeightedExperts::among_rest(Draws& draws, std::span<const std::int32_t> drawn) const {
  std::uint64_t rest = cumulative_.back();
  for (std::int32_t expert : drawn) rest -= weight(static_cast<std::size_t>(expert));
  std::uint64_t at = draws.below(rest);
  std::size_t expert = 0;
  for (;; ++expert) {
    if (contains(drawn, static_cast<std::int32_t>(expert))) continue;
    if (at < weight(expert)) return static_cast<std::int32_t>(expert);
    at -= weight(expert);
  }
}

}  // namespace evenkeel::internal
