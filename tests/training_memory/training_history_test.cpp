// The shape of MemFine's figure 5 on the routing of a small model that was really trained: chunk counts rise,
// then fall, over the steps, and follow the layers that are skewed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "evenkeel/io/array_file.h"
#include "evenkeel/training_memory/mact.h"
#include "tests/training_memory/support.h"

namespace evenkeel {
namespace {

constexpr std::int64_t layers = 8;
constexpr std::int64_t ranks = 8;
// A device with space for one and a half times what even routing of 16,384 assignments would send it.
constexpr std::int64_t most_received = 16384 / ranks * 3 / 2;
const std::vector<std::int64_t> bins = {1, 2, 4, 8};

class TrainingHistory : public testing::Test {
 protected:
  // Over steps and layers, each half-open.
  template <class Value>
  double mean(std::int64_t begin, std::int64_t end, std::int64_t first, std::int64_t last,
              Value value) const {
    double sum = 0;
    for (std::int64_t step = begin; step < end; ++step)
      for (std::int64_t layer = first; layer < last; ++layer)
        sum += static_cast<double>(value(rows_.values[static_cast<std::size_t>(step * layers + layer)]));
    return sum / static_cast<double>((end - begin) * (last - first));
  }
  double mean_chunks(std::int64_t begin, std::int64_t end, std::int64_t first = 0,
                     std::int64_t last = layers) const {
    return mean(begin, end, first, last,
                [](std::int64_t rows) { return mact(rows, most_received, bins).chunks; });
  }
  double mean_rows(std::int64_t begin, std::int64_t end, std::int64_t layer) const {
    return mean(begin, end, layer, layer + 1, [](std::int64_t rows) { return rows; });
  }

  const IntArray rows_ =
      read_integers(*open_array_file(repository_file("data/tiny-moe/train_rank_rows.npz")), "rows");
};

TEST_F(TrainingHistory, ChunksRiseThenFallOverTheSteps) {
  ASSERT_THAT(rows_.shape, testing::ElementsAre(1563, layers));
  const std::vector<double> early = {mean_chunks(0, 5), mean_chunks(5, 10), mean_chunks(10, 20)};
  EXPECT_TRUE(std::ranges::is_sorted(early)) << testing::PrintToString(early);
  EXPECT_GT(early.back(), early.front() + 0.5);
  const std::vector<double> late = {early.back(), mean_chunks(50, 100), mean_chunks(300, 600),
                                    mean_chunks(1463, 1563)};
  EXPECT_TRUE(std::ranges::is_sorted(late, std::greater())) << testing::PrintToString(late);
  EXPECT_LT(late.back(), early.front());
}

TEST_F(TrainingHistory, SkewedLayersGetMoreChunksAndTheLaterOnesMost) {
  for (const auto& [begin, end] :
       {std::pair(0, 5), std::pair(10, 20), std::pair(300, 600), std::pair(1463, 1563)}) {
    const auto fullest = [&, b = begin, e = end](std::int64_t layer) { return mean_rows(b, e, layer); };
    std::vector<std::int64_t> order(layers);
    std::iota(order.begin(), order.end(), 0);
    std::ranges::sort(order, {}, fullest);
    // The three most skewed beside the three least.
    double least = 0;
    double most = 0;
    for (int i = 0; i < 3; ++i) {
      least +=
          mean_chunks(begin, end, order[static_cast<std::size_t>(i)], order[static_cast<std::size_t>(i)] + 1);
      const std::int64_t skewed = order[order.size() - 1 - static_cast<std::size_t>(i)];
      most += mean_chunks(begin, end, skewed, skewed + 1);
    }
    EXPECT_GT(most, least) << begin;
  }
  EXPECT_GT(mean_chunks(5, 20, 6, 8), 2 * mean_chunks(5, 20, 0, 2));
}

TEST_F(TrainingHistory, TheRowsAreThoseOfTheFullestRankInTheCounts) {
  const IntArray counts =
      read_integers(*open_array_file(repository_file("data/tiny-moe/train_counts.npz")), "counts");
  const std::int64_t experts = counts.shape[2];
  for (std::size_t row = 0; row < rows_.values.size(); ++row) {
    std::vector<std::int64_t> by_rank(ranks);
    for (std::int64_t e = 0; e < experts; ++e)
      by_rank[static_cast<std::size_t>(e * ranks / experts)] +=
          counts.values[row * static_cast<std::size_t>(experts) + static_cast<std::size_t>(e)];
    ASSERT_EQ(rows_.values[row], std::ranges::max(by_rank)) << row;
  }
}

}  // namespace
}  // namespace evenkeel
