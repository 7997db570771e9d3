// The fullest rank's rows, compared with a count from random loads, and the chunks that each stage's layers
// need. The history of a small trained model has the shape of MemFine's Figure 5.
#include "evenkeel/training_memory/history.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "evenkeel/base/error.h"
#include "evenkeel/io/array_file.h"
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

TEST_F(History, LoadsOfExpertsBecomeTheRowsOfTheFullestRankAndACutHasTheStepsAskedFor) {
  const RecordedCounts counts = of_experts(7, 1);
  const ReceivedHistory history = received_history(counts, memory_);
  ASSERT_EQ(history.steps(), 7);
  for (std::size_t row = 0; row < history.rows.size(); ++row) {
    std::vector<std::int64_t> by_rank(static_cast<std::size_t>(ranks_), 0);
    for (std::int64_t e = 0; e < experts_; ++e)
      by_rank[static_cast<std::size_t>(e / (experts_ / ranks_))] +=
          counts.values[row * static_cast<std::size_t>(experts_) + static_cast<std::size_t>(e)];
    EXPECT_EQ(history.rows[row], std::ranges::max(by_rank)) << row;
  }
  const ReceivedHistory part = cut(history, 2, 5);
  EXPECT_EQ(part.first_step, 2);
  EXPECT_THAT(part.rows, testing::ElementsAreArray(history.rows.begin() + 2 * layers_,
                                                   history.rows.begin() + 5 * layers_));
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

constexpr std::int64_t layers = 8;

TEST(TrainingHistory, ChunksRiseThenFallOverTheStepsAndLaterLayersGetMost) {
  const IntArray rows =
      read_integers(*open_array_file(repository_file("data/tiny-moe/train_rank_rows.npz")), "rows");
  ASSERT_THAT(rows.shape, testing::ElementsAre(1563, layers));
  // The device has memory for 1.5 times the rows that even routing of 16,384 assignments would send it.
  constexpr std::int64_t most_received = 16384 / 8 * 3 / 2;
  const std::vector<std::int64_t> bins = {1, 2, 4, 8};
  // The mean number of chunks over half-open ranges of steps and layers.
  const auto mean = [&](std::int64_t begin, std::int64_t end, std::int64_t first = 0,
                        std::int64_t last = layers) {
    double sum = 0;
    for (std::int64_t step = begin; step < end; ++step)
      for (std::int64_t layer = first; layer < last; ++layer)
        sum += static_cast<double>(
            mact(rows.values[static_cast<std::size_t>(step * layers + layer)], most_received, bins).chunks);
    return sum / static_cast<double>((end - begin) * (last - first));
  };
  const std::vector<double> early = {mean(0, 5), mean(5, 10), mean(10, 20)};
  EXPECT_TRUE(std::ranges::is_sorted(early)) << testing::PrintToString(early);
  EXPECT_GT(early.back(), early.front() + 0.5);
  const std::vector<double> late = {early.back(), mean(50, 100), mean(300, 600), mean(1463, 1563)};
  EXPECT_TRUE(std::ranges::is_sorted(late, std::greater())) << testing::PrintToString(late);
  EXPECT_LT(late.back(), early.front());
  EXPECT_GT(mean(5, 20, 6, 8), 2 * mean(5, 20, 0, 2));
}

}  // namespace
}  // namespace evenkeel
