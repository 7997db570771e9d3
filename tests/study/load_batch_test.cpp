// Batches have the loads from which they are made.
#include "benchmarks/joint_study/load_batch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <set>

namespace evenkeel::study {
namespace {

std::vector<std::int64_t> random_loads(std::mt19937_64& random, int experts, std::int64_t most) {
  std::vector<std::int64_t> loads;
  for (int e = 0; e < experts; ++e) loads.push_back(static_cast<std::int64_t>(random() % (most + 1)));
  return loads;
}

TEST(ScaledLoads, AddUpToTheTotalAndAreWithinOneOfTheirShare) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    std::mt19937_64 random(seed);
    const auto loads = random_loads(random, 1 + static_cast<int>(random() % 20), 1000);
    const auto whole = std::reduce(loads.begin(), loads.end());
    const auto total = static_cast<std::int64_t>(random() % 5000);
    const auto scaled = scaled_loads(loads, total);
    ASSERT_EQ(scaled.size(), loads.size()) << "seed " << seed;
    EXPECT_EQ(std::reduce(scaled.begin(), scaled.end()), whole == 0 ? 0 : total) << "seed " << seed;
    for (std::size_t e = 0; e < loads.size() && whole > 0; ++e)
      EXPECT_LT(std::abs(scaled[e] * whole - loads[e] * total), whole) << "seed " << seed << ", expert " << e;
  }
}

TEST(BatchOfLoads, HasTheseLoadsAndDistinctExpertsWhereTheyFit) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    std::mt19937_64 random(seed);
    const int top_k = 1 + static_cast<int>(random() % 4);
    const std::int64_t tokens = 1 + static_cast<std::int64_t>(random() % 50);
    // Each of `top_k` rounds gives every token one expert, so no load exceeds the number of tokens.
    std::vector<std::int64_t> loads(8 * static_cast<std::size_t>(top_k), 0);
    for (int choice = 0; choice < top_k; ++choice)
      for (std::int64_t token = 0; token < tokens; ++token)
        ++loads[static_cast<std::size_t>(choice) * 8 + random() % 8];
    const Batch batch = batch_of_loads("loads", loads, top_k, 3, seed);
    ASSERT_EQ(batch.num_tokens(), tokens) << "seed " << seed;
    EXPECT_EQ(batch.num_ranks(), 3);
    std::vector<std::int64_t> counted(loads.size(), 0);
    for (const std::int32_t expert : batch.experts) ++counted[static_cast<std::size_t>(expert)];
    EXPECT_EQ(counted, loads) << "seed " << seed;
    const auto k = static_cast<std::size_t>(top_k);
    for (std::size_t at = 0; at < batch.experts.size(); at += k) {
      const auto chosen = std::span(batch.experts).subspan(at, k);
      EXPECT_EQ(std::set<std::int32_t>(chosen.begin(), chosen.end()).size(), k) << "seed " << seed;
      const auto weights = std::span(batch.router_weights).subspan(at, k);
      EXPECT_TRUE(std::ranges::is_sorted(weights, std::greater())) << "seed " << seed;
      EXPECT_NEAR(std::reduce(weights.begin(), weights.end()), 1, 1e-6) << "seed " << seed;
    }
  }
}

}  // namespace
}  // namespace evenkeel::study
