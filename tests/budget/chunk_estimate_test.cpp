// The estimated number of chunks, compared with the cut that is then made.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <random>

#include "evenkeel/budget/buffer_bytes.h"
#include "evenkeel/budget/chunk_planner.h"
#include "tests/budget/routed_step.h"

namespace evenkeel::testing {
namespace {

constexpr int kBlocks = 32;
constexpr std::int64_t kTokens = 1024;

// Plain EP with tokens that all choose the same experts, so that every block has the same load.
struct EvenBlocks {
  explicit EvenBlocks(std::mt19937_64& random) {
    const int ranks = 1 + static_cast<int>(random() % 8);
    const int experts = ranks + static_cast<int>(random() % 16);
    step.k = 1 + static_cast<int>(random() % 4);
    step.placement = LayerPlacement::contiguous(experts, ranks);
    std::vector<std::int32_t> choice(static_cast<std::size_t>(step.k));
    for (auto& id : choice) id = static_cast<std::int32_t>(random() % static_cast<unsigned>(experts));
    for (int rank = 0; rank < ranks; ++rank) {
      auto& ids = step.ids.emplace_back();
      for (std::int64_t token = 0; token < kTokens; ++token)
        ids.insert(ids.end(), choice.begin(), choice.end());
    }
    loads.read(block_table(step, kBlocks, numbers), step.placement, step.tokens(), step.k);
    loads.follow(plain_plan(step));
    shape.num_ranks = ranks;
    shape.num_experts = experts;
    shape.top_k = step.k;
    shape.hidden = 64;
    shape.saved_bytes = 2 * 64 * shape.element_bytes;
  }
  std::int64_t whole() const {
    std::int64_t bytes = 0;
    for (RankId rank : indices<RankId>(shape.num_ranks))
      bytes = std::max(bytes, forward_bytes(shape, loads.load(rank, 0, kBlocks), 0));
    return bytes;
  }

  RoutedStep step;
  std::vector<std::int32_t> numbers;
  BlockLoads loads;
  ChunkShape shape;
};

// A chunk's bytes grow at most in proportion to its load, so the estimated number of equal chunks fits.
TEST(ChunkEstimate, IsEnoughWhereEveryBlockHasTheSameLoad) {
  for (unsigned seed = 0; seed < 2000; ++seed) {
    std::mt19937_64 random(seed);
    const EvenBlocks even(random);
    const std::int64_t limit = even.whole() * static_cast<std::int64_t>(1 + random() % 120) / 100;
    const std::vector<std::int64_t> limits(static_cast<std::size_t>(even.shape.num_ranks), limit);
    const BufferBytes model(even.shape, Recompute::automatic);
    const std::vector<ForeignLoad> nothing(limits.size());
    const ChunkLimits forward{model, ChunkUse::forward, nothing, limits};
    const std::int64_t about = estimated_chunks(forward, even.loads, kTokens);
    EXPECT_EQ(about == 1, limit >= even.whole()) << "seed " << seed;
    const auto of_blocks = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(about)));
    if (of_blocks > kBlocks) continue;
    std::vector<Chunk> chunks;
    ASSERT_TRUE(cut_into_chunks(forward, even.loads, 0, kTokens, chunks)) << "seed " << seed;
    EXPECT_LE(static_cast<std::int64_t>(chunks.size()), of_blocks) << "seed " << seed;
  }
}

TEST(ChunkEstimate, HasAtMostSoManyChunksWhereNothingFits) {
  std::mt19937_64 random(1);
  const EvenBlocks even(random);
  const std::vector<std::int64_t> limits(static_cast<std::size_t>(even.shape.num_ranks), 0);
  const BufferBytes model(even.shape, Recompute::automatic);
  const std::vector<ForeignLoad> nothing(limits.size());
  EXPECT_EQ(estimated_chunks({model, ChunkUse::forward, nothing, limits}, even.loads, 77), 77);
}

}  // namespace
}  // namespace evenkeel::testing
