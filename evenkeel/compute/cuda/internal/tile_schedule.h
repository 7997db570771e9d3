// The output tiles of a call and the order in which blocks draw them. Made on the device from the group
// sizes.
//
// Problem    Groups have any size, even 0, and only the device knows the sizes. The GPU runs as many blocks
//            as fit on it; they draw tiles until none is left.
// Method     Products over rows: a row tile has up to kTileRows rows, all of one group; bisecting the running
//            sum of the groups' row tiles finds a tile's group.
//            Products of weight gradients: every group with rows has the same number of tiles, and a tile's
//            cost is proportional to its group's rows. So the largest groups come first, and small ones fill
//            the gaps at the end.
//            Within a group, tiles are drawn in bands of kBand row tiles, column by column within a band, so
//            that running blocks share their operands in the L2 cache.
// Cost       O(G^2 / lanes) to make, O(log G) per tile.
#pragma once

#include <cstdint>

#include "evenkeel/device/cuda/team.h"

namespace evenkeel::cuda {

inline constexpr int kTileRows = 128;
inline constexpr int kBand = 16;
// Number of counters of drawn tiles: one per product of a call.
inline constexpr int kMostProducts = 8;

// All arrays are in device memory; see schedule_ints().
struct TileSchedule {
  int num_groups = 0;
  const std::int32_t* begin = nullptr;  // the caller's [num_groups + 1]
  std::int32_t* row_tiles = nullptr;    // [num_groups + 1]: row tiles of earlier groups; last, the total
  std::int32_t* by_size =
      nullptr;  // [num_groups + 1]: groups by decreasing size, then index; last, how many have rows
  std::int32_t* drawn = nullptr;  // [kMostProducts], zero at first
};

constexpr std::int64_t schedule_ints(int num_groups) {
  return 2 * (std::int64_t{num_groups} + 1) + kMostProducts;
}

// `ints` has schedule_ints() elements.
inline TileSchedule schedule_in(std::int32_t* ints, int num_groups, const std::int32_t* begin) {
  std::int32_t* const by_size = ints + num_groups + 1;
  return {num_groups, begin, ints, by_size, by_size + num_groups + 1};
}

template <class Team>
EVENKEEL_HOST_DEVICE void make_schedule(const Team& team, const TileSchedule& schedule) {
  const int groups = schedule.num_groups;
  const auto size = [&](int g) { return schedule.begin[g + 1] - schedule.begin[g]; };
  team.for_each(groups, [&](int g) {
    const std::int32_t own = size(g);
    int before = 0;
    for (int other = 0; other < groups; ++other) {
      const std::int32_t theirs = size(other);
      before += theirs > own || (theirs == own && other < g) ? 1 : 0;
    }
    schedule.by_size[before] = g;
    schedule.row_tiles[g] = (own + kTileRows - 1) / kTileRows;
  });
  team.for_each(kMostProducts, [&](int i) { schedule.drawn[i] = 0; });
  team.sync();
  const std::int32_t tiles = exclusive_scan(team, schedule.row_tiles, groups);
  team.for_each(groups + 1, [&](int rank) {
    const bool has_rows = rank < groups && size(schedule.by_size[rank]) > 0;
    const bool before_has = rank == 0 || size(schedule.by_size[rank - 1]) > 0;
    if (!has_rows && before_has) schedule.by_size[groups] = rank;
  });
  if (team.rank() == 0) schedule.row_tiles[groups] = tiles;
  team.sync();
}

struct Tile {
  std::int32_t group = -1;  // -1: no tile is left
  std::int32_t row = 0;     // first output row within the group's output matrix
  std::int32_t col = 0;     // index of the tile within its row of tiles
  std::int32_t begin = 0;   // first position
  std::int32_t rows = 0;    // number of positions from `begin`
};

namespace internal {

struct Place {
  std::int32_t row, col;
};

// The place of the `index`-th drawn tile in a matrix of rows x cols tiles.
EVENKEEL_HOST_DEVICE inline Place place_in_bands(std::int32_t index, std::int32_t rows, std::int32_t cols) {
  const std::int32_t band = index / (kBand * cols);
  const std::int32_t within = index - band * kBand * cols;
  const std::int32_t height = rows - band * kBand < kBand ? rows - band * kBand : kBand;
  return {band * kBand + within % height, within / height};
}

// The group of row tile `tile`.
EVENKEEL_HOST_DEVICE inline int group_of(const std::int32_t* row_tiles, int num_groups, std::int32_t tile) {
  int low = 0, high = num_groups;  // row_tiles[low] <= tile < row_tiles[high]
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (row_tiles[middle] <= tile)
      low = middle;
    else
      high = middle;
  }
  return low;
}

}  // namespace internal

// The `index`-th tile of a product whose output has one row per position. `row_tiles` is schedule.row_tiles
// or a copy of it.
EVENKEEL_HOST_DEVICE inline Tile row_tile(const TileSchedule& schedule, const std::int32_t* row_tiles,
                                          std::int32_t index, int col_tiles) {
  if (index / col_tiles >= row_tiles[schedule.num_groups]) return {};
  const int g = internal::group_of(row_tiles, schedule.num_groups, index / col_tiles);
  const std::int32_t tiles = row_tiles[g + 1] - row_tiles[g];
  const internal::Place place = internal::place_in_bands(index - row_tiles[g] * col_tiles, tiles, col_tiles);
  const std::int32_t begin = schedule.begin[g] + place.row * kTileRows;
  const std::int32_t left = schedule.begin[g + 1] - begin;
  return {g, place.row * kTileRows, place.col, begin, left < kTileRows ? left : kTileRows};
}

// The `index`-th tile of a product whose output is one matrix per group, of matrix_tiles x col_tiles tiles.
EVENKEEL_HOST_DEVICE inline Tile matrix_tile(const TileSchedule& schedule, std::int32_t index,
                                             int matrix_tiles, int col_tiles) {
  const std::int32_t each = matrix_tiles * col_tiles;
  if (index / each >= schedule.by_size[schedule.num_groups]) return {};
  const int g = schedule.by_size[index / each];
  const internal::Place place = internal::place_in_bands(index % each, matrix_tiles, col_tiles);
  return {g, place.row * kTileRows, place.col, schedule.begin[g], schedule.begin[g + 1] - schedule.begin[g]};
}

}  // namespace evenkeel::cuda
