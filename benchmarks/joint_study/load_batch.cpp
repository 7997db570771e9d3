#include "benchmarks/joint_study/load_batch.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <random>
#include <utility>

namespace evenkeel::study {

namespace {

using Random = std::mt19937_64;

// std::shuffle gives different orders in different standard libraries.
template <class T>
void shuffle(std::vector<T>& values, Random& random) {
  for (std::size_t left = values.size(); left > 1; --left)
    std::swap(values[left - 1], values[static_cast<std::size_t>(random() % left)]);
}

template <class T>
std::vector<T> shuffled_numbers(std::size_t count, Random& random) {
  std::vector<T> numbers(count);
  std::iota(numbers.begin(), numbers.end(), T{0});
  shuffle(numbers, random);
  return numbers;
}

// Positive, descending, with sum 1.
void fill_weights(std::span<float> weights, Random& random) {
  float sum = 0;
  for (float& weight : weights) {
    weight = 0.5f + static_cast<float>(random() >> 40) * 0x1p-24f;
    sum += weight;
  }
  std::ranges::sort(weights, std::greater<>());
  for (float& weight : weights) weight /= sum;
}

}  // namespace

std::vector<std::int64_t> scaled_loads(std::span<const std::int64_t> loads, std::int64_t total) {
  const std::int64_t whole = std::reduce(loads.begin(), loads.end(), std::int64_t{0});
  std::vector<std::int64_t> scaled;
  std::vector<std::pair<std::int64_t, std::size_t>> remainders;  // negative, so that the largest come first
  if (whole == 0) return std::vector<std::int64_t>(loads.size(), 0);
  for (const std::int64_t load : loads) {
    const auto product = static_cast<__int128>(load) * total;
    remainders.emplace_back(-static_cast<std::int64_t>(product % whole), scaled.size());
    scaled.push_back(static_cast<std::int64_t>(product / whole));
  }
  std::ranges::sort(remainders);
  const std::int64_t missing = total - std::reduce(scaled.begin(), scaled.end(), std::int64_t{0});
  for (std::int64_t i = 0; i < missing; ++i) ++scaled[remainders[static_cast<std::size_t>(i)].second];
  return scaled;
}

Batch batch_of_loads(std::string name, std::span<const std::int64_t> loads, int top_k, int num_ranks,
                     std::uint64_t seed) {
  Random random(seed);
  const std::int64_t tokens =
      std::reduce(loads.begin(), loads.end(), std::int64_t{0}) / static_cast<std::int64_t>(top_k);
  Batch batch;
  batch.name = std::move(name);
  batch.top_k = top_k;
  for (std::int64_t rank = 1; rank <= num_ranks; ++rank)
    batch.first_token.push_back(tokens * rank / num_ranks);
  batch.experts.resize(static_cast<std::size_t>(tokens * top_k));
  batch.router_weights.resize(batch.experts.size());

  // Deals each expert's assignments to the tokens in turn, so a token gets an expert only once.
  const auto order = shuffled_numbers<std::int64_t>(static_cast<std::size_t>(tokens), random);
  std::int64_t dealt = 0;
  for (const auto expert : shuffled_numbers<std::int32_t>(loads.size(), random))
    for (std::int64_t i = 0; i < loads[static_cast<std::size_t>(expert)]; ++i, ++dealt) {
      const std::int64_t token = order[static_cast<std::size_t>(dealt % tokens)];
      batch.experts[static_cast<std::size_t>(token * top_k + dealt / tokens)] = expert;
    }
  const auto k = static_cast<std::size_t>(top_k);
  for (std::size_t at = 0; at < batch.router_weights.size(); at += k)
    fill_weights(std::span(batch.router_weights).subspan(at, k), random);
  return batch;
}

}  // namespace evenkeel::study
