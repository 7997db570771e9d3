// Random draws that are the same on every machine. They come from a mixing function (splitmix64) of a
// counter, followed by integer arithmetic. std:: distributions differ between standard libraries.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

namespace evenkeel::internal {

constexpr std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// A stream of random draws. Each key, a list of numbers, gives its own stream.
class Draws {
 public:
  explicit Draws(std::initializer_list<std::uint64_t> key) {
    for (std::uint64_t part : key) key_ = mix(key_ ^ mix(part));
  }

  std::uint64_t next() { return mix(key_ + counter_++ * 0xd1342543de82ef95u); }

  // Uniform in 0..bound-1, for bound >= 1. Takes just enough bits, and draws again if the number is not below
  // `bound`.
  std::uint64_t below(std::uint64_t bound) {
    const std::uint64_t mask = bound <= 1 ? 0 : ~std::uint64_t{0} >> std::countl_zero(bound - 1);
    for (;;) {
      const std::uint64_t drawn = next() & mask;
      if (drawn < bound) return drawn;
    }
  }

  // Uniform in [0, 1), in steps of 2^-24.
  double fraction() { return static_cast<double>(next() >> 40) * 0x1p-24; }

  template <class T>
  void shuffle(std::span<T> items) {
    for (std::size_t i = items.size(); i > 1; --i)
      std::swap(items[i - 1], items[static_cast<std::size_t>(below(i))]);
  }

  // 0..count-1 in random order.
  std::vector<std::int32_t> permutation(int count) {
    std::vector<std::int32_t> order(static_cast<std::size_t>(count));
    std::iota(order.begin(), order.end(), 0);
    shuffle(std::span(order));
    return order;
  }

  // Distinct numbers in 0..count-1, in random order; all sets of out.size() numbers are equally likely.
  void distinct(int count, std::span<std::int32_t> out);

 private:
  std::uint64_t key_ = 0;
  std::uint64_t counter_ = 0;
};

// Draws distinct experts for a token: each draw takes one of the experts not drawn yet, in proportion to
// their weights.
class WeightedExperts {
 public:
  // Weights are divided by the largest one and rounded to multiples of 2^-32, at least 2^-32. So the last
  // bits of exp() and pow(), which differ between platforms, do not matter.
  explicit WeightedExperts(std::span<const double> weights);
  void distinct(Draws& draws, std::span<std::int32_t> out) const;

 private:
  std::uint64_t weight(std::size_t expert) const {
    return cumulative_[expert] - (expert == 0 ? 0 : cumulative_[expert - 1]);
  }
  std::int32_t among_rest(Draws& draws, std::span<const std::int32_t> drawn) const;

  std::vector<std::uint64_t> cumulative_;
};

}  // namespace evenkeel::internal
