// Buffer sizes and chunk limits of a GPU layer under any budget; needs no GPU.
#include <gtest/gtest.h>

#include <random>

#include "evenkeel/layer/cuda/chunk_limits.h"

namespace evenkeel::cuda {
namespace {

// The least budget named by the error.
std::int64_t least_of(const BudgetTooSmall& error) {
  for (const Error::Field& field : error.data())
    if (field.name == "least") return std::get<std::int64_t>(field.value);
  return -1;
}

// A layer's bytes: `fixed`, plus `table` for each chunk that a step may have, plus `each` for each position.
struct Bytes {
  std::int64_t fixed, table, each;
  std::int64_t operator()(int chunks, std::int64_t positions) const {
    return fixed + table * chunks + each * positions;
  }
};

struct Layer {
  int ranks, top_k;
  std::int64_t max_tokens;
  Bytes bytes;
};

Layer random_layer(std::mt19937_64& random) {
  const auto between = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  return {static_cast<int>(between(1, 64)),
          static_cast<int>(between(1, 8)),
          between(1, 40000),
          {between(0, 1 << 20), between(0, 1 << 14), between(1, 40000)}};
}

TEST(ChunkLimits, FitsAnyRoutingInsideTheBudgetOrSaysTheLeast) {
  std::mt19937_64 random(1);
  int cut = 0, refused = 0;
  for (int i = 0; i < 5000; ++i) {
    const Layer l = random_layer(random);
    const std::int64_t worst = worst_positions(l.ranks, l.max_tokens, l.top_k, 1);
    const std::int64_t budget =
        std::uniform_int_distribution<std::int64_t>(1, 2 * l.bytes(1, worst))(random) >> (i % 8);
    try {
      const ChunkLimits limits = fit_chunks(l.ranks, l.max_tokens, l.top_k, budget, l.bytes);
      ASSERT_GE(limits.most_positions, worst_positions(l.ranks, l.max_tokens, l.top_k, limits.most_chunks));
      ASSERT_LE(l.bytes(limits.most_chunks, limits.most_positions), budget);
      ASSERT_TRUE(limits.most_positions == worst ||
                  l.bytes(limits.most_chunks, limits.most_positions + 1) > budget);
      ASSERT_EQ(limits.most_chunks & (limits.most_chunks - 1), 0);
      ASSERT_EQ(limits.num_slices % limits.most_chunks, 0);
      ASSERT_LE((l.max_tokens + limits.num_slices - 1) / limits.num_slices * l.top_k, 65535);
      cut += limits.most_chunks > 1;
    } catch (const BudgetTooSmall& error) {
      ++refused;
      ASSERT_GT(least_of(error), budget);
      const ChunkLimits least = fit_chunks(l.ranks, l.max_tokens, l.top_k, least_of(error), l.bytes);
      ASSERT_LE(l.bytes(least.most_chunks, least.most_positions), least_of(error));
      ASSERT_THROW(fit_chunks(l.ranks, l.max_tokens, l.top_k, least_of(error) - 1, l.bytes), BudgetTooSmall);
    }
  }
  EXPECT_GT(cut, 500);
  EXPECT_GT(refused, 300);
}

TEST(ChunkLimits, IsOneChunkOfTheWorstRoutingWithoutABudget) {
  const ChunkLimits limits = fit_chunks(8, 16384, 8, -1, Bytes{1, 1, 1000});
  EXPECT_EQ(limits.most_chunks, 1);
  EXPECT_EQ(limits.most_positions, 8 * 16384 * 8);
  EXPECT_EQ(limits.num_slices, 128);
}

}  // namespace
}  // namespace evenkeel::cuda
