// The tile schedule compared with brute force.
#include "evenkeel/compute/cuda/internal/tile_schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <tuple>
#include <vector>

namespace evenkeel::cuda {
namespace {

struct Case {
  std::vector<std::int32_t> begin;
  std::vector<std::int32_t> ints;
  TileSchedule schedule;

  explicit Case(const std::vector<std::int32_t>& sizes, std::int32_t first = 0) : begin{first} {
    for (std::int32_t size : sizes) begin.push_back(begin.back() + size);
    const int groups = static_cast<int>(sizes.size());
    ints.assign(static_cast<std::size_t>(schedule_ints(groups)), -77);
    schedule = schedule_in(ints.data(), groups, begin.data());
    make_schedule(HostTeam(), schedule);
  }
};

std::size_t at(std::int32_t index) {
  return static_cast<std::size_t>(index);
}

std::vector<std::int32_t> random_sizes(std::mt19937_64& random) {
  std::vector<std::int32_t> sizes(std::uniform_int_distribution<std::size_t>(0, 40)(random));
  for (std::int32_t& size : sizes) {
    const int kind = std::uniform_int_distribution<int>(0, 3)(random);
    size = kind == 0 ? 0 : std::uniform_int_distribution<std::int32_t>(0, kind == 1 ? 3000 : 200)(random);
  }
  return sizes;
}

TEST(RowTiles, CoverEveryPositionAndColumnOnceAndNeverCrossAGroup) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 200; ++round) {
    const Case made(random_sizes(random), round % 5);
    const int columns = 1 + round % 7;
    std::vector<int> covered(at(made.begin.back()) * at(columns));  // [position][column]
    for (std::int32_t index = 0;; ++index) {
      const Tile tile = row_tile(made.schedule, made.schedule.row_tiles, index, columns);
      if (tile.group < 0) break;
      const auto g = static_cast<std::size_t>(tile.group);
      ASSERT_GT(tile.rows, 0) << round;
      ASSERT_LE(tile.rows, kTileRows) << round;
      ASSERT_EQ(tile.begin, made.begin[g] + tile.row) << round;
      ASSERT_LE(tile.begin + tile.rows, made.begin[g + 1]) << round;
      for (std::int32_t i = 0; i < tile.rows; ++i) ++covered[at(tile.begin + i) * at(columns) + at(tile.col)];
    }
    const std::size_t nobodys = at(made.begin.front()) * at(columns);
    for (std::size_t i = 0; i < covered.size(); ++i)
      ASSERT_EQ(covered[i], i < nobodys ? 0 : 1) << round << " " << i;
  }
}

TEST(MatrixTiles, CoverTheMatrixOfEveryGroupWithRowsOnceLargestGroupsFirst) {
  std::mt19937_64 random(2);
  for (int round = 0; round < 200; ++round) {
    const std::vector<std::int32_t> sizes = random_sizes(random);
    const Case made(sizes);
    const int rows = 1 + round % 19, columns = 1 + round % 6;
    std::set<std::tuple<std::int32_t, std::int32_t, std::int32_t>> seen;
    std::int32_t last_size = 1 << 30;
    for (std::int32_t index = 0;; ++index) {
      const Tile tile = matrix_tile(made.schedule, index, rows, columns);
      if (tile.group < 0) break;
      const auto g = static_cast<std::size_t>(tile.group);
      ASSERT_EQ(tile.rows, sizes[g]) << round;
      ASSERT_EQ(tile.begin, made.begin[g]) << round;
      ASSERT_LE(tile.rows, last_size) << round;
      ASSERT_TRUE(tile.row % kTileRows == 0 && tile.row / kTileRows < rows && tile.col < columns) << round;
      ASSERT_TRUE(seen.insert({tile.group, tile.row, tile.col}).second) << round;
      last_size = tile.rows;
    }
    const auto with_rows = std::ranges::count_if(sizes, [](std::int32_t size) { return size > 0; });
    ASSERT_EQ(static_cast<std::int64_t>(seen.size()), with_rows * rows * columns) << round;
  }
}

TEST(TileSchedule, StartsItsCountersAtZeroAndWritesNothingElse) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 100; ++round) {
    Case made(random_sizes(random));
    for (int i = 0; i < kMostProducts; ++i) ASSERT_EQ(made.schedule.drawn[i], 0);
    ASSERT_EQ(made.schedule.drawn + kMostProducts, made.ints.data() + made.ints.size());
    ASSERT_EQ(std::ranges::count(made.ints, -77), 0);
  }
}

TEST(TilesInBands, KeepTheBlocksAtWorkOnFewRowsAndColumns) {
  // 132 consecutive tiles of a group of 64 x 23 tiles lie in at most two bands of rows, and in as many
  // columns as those bands need.
  const Case made({64 * kTileRows});
  std::set<std::int32_t> rows, columns;
  for (std::int32_t index = 132; index < 264; ++index) {
    const Tile tile = row_tile(made.schedule, made.schedule.row_tiles, index, 23);
    rows.insert(tile.row);
    columns.insert(tile.col);
  }
  EXPECT_LE(rows.size(), 2u * kBand);
  EXPECT_LE(rows.size() + columns.size(), 39u);
}

}  // namespace
}  // namespace evenkeel::cuda
