// Rows of the fullest rank, counted here from loads drawn here, and the chunks that each stage's layers need.
#include "evenkeel/training_memory/history.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "evenkeel/base/error.h"
#include "tests/training_memory/support.h"

namespace evenkeel {
namespace {

class History : public testing::Test {
 protected:
  RecordedCounts of_experts(std::int64_t steps, std::uint64_t seed) const {
    std::mt19937_64 random(seed);
    RecordedCounts counts{"counts.npz", "counts", {steps, layers_, experts_}, {}};
    for (std::int64_t i = 0; i < steps * layers_ * experts_; ++i)
      counts.values.push_back(static_cast<std::int64_t>(random() % 5000));
    return counts;
  }

  const MemoryModel memory_{model_named("memfine-model-1"), memfine_setup()};
  const std::int64_t layers_ = memory_.model().num_moe_layers();
  const std::int64_t experts_ = memory_.model().experts.count;
  const std::int64_t ranks_ = memory_.setup().parallel.expert;
};

TEST_F(History, LoadsOfExpertsBecomeTheRowsOfTheFullestRank) {
  const RecordedCounts counts = of_experts(3, 1);
  const ReceivedHistory history = received_history(counts, memory_);
  ASSERT_EQ(history.steps(), 3);
  for (std::size_t row = 0; row < history.rows.size(); ++row) {
    std::vector<std::int64_t> by_rank(static_cast<std::size_t>(ranks_), 0);
    for (std::int64_t e = 0; e < experts_; ++e)
      by_rank[static_cast<std::size_t>(e / (experts_ / ranks_))] +=
          counts.values[row * static_cast<std::size_t>(experts_) + static_cast<std::size_t>(e)];
    EXPECT_EQ(history.rows[row], std::ranges::max(by_rank)) << row;
  }
}

TEST_F(History, ACutHasTheStepsAskedForAndKnowsTheirNumbers) {
  const ReceivedHistory whole = received_history(of_experts(7, 2), memory_);
  const ReceivedHistory part = cut(whole, 2, 5);
  EXPECT_EQ(part.first_step, 2);
  ASSERT_EQ(part.steps(), 3);
  EXPECT_TRUE(std::ranges::equal(
      part.rows, std::span(whole.rows).subspan(static_cast<std::size_t>(2 * layers_), part.rows.size())));
}

TEST_F(History, EveryLayerGetsTheChunksOfItsStage) {
  const DeviceMemory device{.available_bytes = gigabytes(57.6), .static_bytes = gigabytes(43)};
  const Fit fitted = fit(memory_, std::nullopt, device);
  const ReceivedHistory history = received_history(of_experts(2, 3), memory_);
  const ChunkHistory chosen = choose_chunks(history, memory_, fitted, device);
  ASSERT_EQ(chosen.steps(), 2);
  std::int64_t column = 0;
  for (std::int64_t layer = 0; layer < memory_.model().num_layers; ++layer) {
    if (!memory_.model().has_experts[static_cast<std::size_t>(layer)]) continue;
    for (const StageFit& stage : fitted.stages) {
      if (std::ranges::count(memory_.layers(stage.stage), layer) == 0) continue;
      const std::int64_t rows = history.rows[static_cast<std::size_t>(layers_ + column)];
      EXPECT_EQ(chosen.at(1, column), choose_chunks(memory_, stage, rows, device));
    }
    ++column;
  }
}

TEST_F(History, RefusesCountsOfAnotherModel) {
  RecordedCounts counts = of_experts(1, 4);
  counts.shape[2] += 1;
  EXPECT_THROW(received_history(counts, memory_), ParseError);
  counts.shape = {1, layers_ + 100};
  EXPECT_THROW(received_history(counts, memory_), ParseError);
  counts = of_experts(1, 4);
  counts.values[0] = -1;
  EXPECT_THROW(received_history(counts, memory_), ParseError);
}

}  // namespace
}  // namespace evenkeel
