// Reproduces the random numbers of Python's `random.Random(seed)`, which servers use: MT19937, seeded as in
// CPython, with `sample` and `shuffle` as in Lib/random.py of CPython 3.8 to 3.13.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

namespace evenkeel::internal {

class PythonRandom {
 public:
  // Draws from a generator that seeded() made, and advances it.
  explicit PythonRandom(std::mt19937& twister) : twister_(&twister) {}

  // init_by_array() of MT19937 with one key.
  static std::mt19937 seeded(std::uint32_t seed) {
    State state;
    auto& words = state.words;
    words[0] = 19650218U;
    const auto mixed = [&](std::size_t i) { return words[i - 1] ^ (words[i - 1] >> 30U); };
    for (std::size_t i = 1; i < kWords; ++i)
      words[i] = 1812433253U * mixed(i) + static_cast<std::uint32_t>(i);
    std::size_t at = 1;
    const auto next = [&] {
      if (++at < kWords) return;
      words[0] = words[kWords - 1];
      at = 1;
    };
    for (std::size_t k = 0; k < kWords; ++k, next()) words[at] = (words[at] ^ (mixed(at) * 1664525U)) + seed;
    for (std::size_t k = 1; k < kWords; ++k, next())
      words[at] = (words[at] ^ (mixed(at) * 1566083941U)) - static_cast<std::uint32_t>(at);
    words[0] = 0x80000000U;
    return std::mt19937(state);
  }

  // A random number in 0..n-1; n is 1 or more.
  std::uint32_t below(std::uint32_t n) {
    const int bits = std::bit_width(n);
    std::uint32_t number = drawn(bits);
    while (number >= n) number = drawn(bits);
    return number;
  }

  // `count` different random numbers in 0..n-1.
  std::vector<std::uint32_t> sample(std::uint32_t n, std::uint32_t count) {
    std::vector<std::uint32_t> sampled;
    if (n <= largest_pool(count)) {
      std::vector<std::uint32_t> pool(n);
      std::iota(pool.begin(), pool.end(), 0U);
      for (std::uint32_t i = 0; i < count; ++i) {
        const std::uint32_t j = below(n - i);
        sampled.push_back(std::exchange(pool[j], pool[n - i - 1]));
      }
      return sampled;
    }
    while (sampled.size() < count) {
      const std::uint32_t number = below(n);
      if (std::ranges::find(sampled, number) == sampled.end()) sampled.push_back(number);
    }
    return sampled;
  }

  void shuffle(std::vector<std::uint32_t>& numbers) {
    for (auto i = static_cast<std::uint32_t>(numbers.size()); i-- > 1;)
      std::swap(numbers[i], numbers[below(i + 1)]);
  }

 private:
  static constexpr std::size_t kWords = std::mt19937::state_size;
  // A seed sequence that gives std::mt19937 the words of its state directly.
  struct State {
    using result_type = std::uint32_t;
    std::array<std::uint32_t, kWords> words;
    template <class Out>
    void generate(Out begin, Out) const {
      std::ranges::copy(words, begin);
    }
  };

  std::uint32_t drawn(int bits) { return static_cast<std::uint32_t>((*twister_)()) >> (32 - bits); }

  // The largest `n` for which sample() draws from a shrinking list. Above it, sample() draws again on a
  // repeat.
  static std::uint32_t largest_pool(std::uint32_t count) {
    std::uint32_t largest = 21;
    if (count > 5)
      largest += 1U << (2 * static_cast<std::uint32_t>(std::ceil(std::log(count * 3) / std::log(4))));
    return largest;
  }

  std::mt19937* twister_;
};

}  // namespace evenkeel::internal
