// Random draws that are the same on every machine: a counter through a mixing function (splitmix64), and
// integer arithmetic on what comes out. std:: distributions differ between standard libraries.
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

// A stream of draws for each list of numbers.
class Draws {
 public:
  explicit Draws(std::initializer_list<std::uint64_t> key) {
    for (std::uint64_t part : key) key_ = mix(key_ ^ mix(part));
  }

  std::uint64_t next() { return mix(key_ + counter_++ * 0xd1342543de82ef95u); }

  // Uniform in 0..bound-1, for bound >= 1: draws of just enough bits, those too large thrown away.
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

  // Distinct numbers of 0..count-1, each set of out.size() of them equally likely, in random order.
  void distinct(int count, std::span<std::int32_t> out);

 private:
  std::uint64_t key_ = 0;
  std::uint64_t counter_ = 0;
};

// Experts drawn by popularity without repetition within a token: each draw in proportion to the weights of
// those not drawn yet.
class WeightedExperts {
 public:
  // Weights are taken relative to the largest, in steps of 2^-32, none below one step; so the last bits of a
  // platform's exp() and pow() do not matter.
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
