// Runs forward and backward (evenkeel/compute/cuda/internal/passes.h) on the host: the part that does not
// depend on how products are computed. Kernel must have kDotColumns and, to multiply tile by tile,
// kTileColumns and run_tile().
#pragma once

#include <algorithm>

#include "evenkeel/compute/cuda/internal/passes.h"

namespace evenkeel::testing {

template <class Kernel>
class HostMachine {
 public:
  static constexpr int kDotColumns = Kernel::kDotColumns;

  void make_schedule(const cuda::TileSchedule& schedule) { cuda::make_schedule(cuda::HostTeam(), schedule); }

  template <class Product>
  void run(const Product& product, const cuda::TileSchedule& schedule, int counter) {
    for (;;) {
      const std::int32_t index = schedule.drawn[counter]++;
      const cuda::Tile tile =
          product.template tile<Kernel::kTileColumns>(schedule, schedule.row_tiles, index);
      if (tile.group < 0) return;
      Kernel::run_tile(product, tile);
    }
  }
  void run(const cuda::RowWeightGradient& sum) {
    constexpr int kLanes = 32;
    for (std::int32_t position = 0; position < sum.max_positions; ++position) {
      if (!sum.has(position)) continue;
      float total = 0;
      for (int lane = 0; lane < kLanes; ++lane) total += sum.part(position, lane, kLanes);
      sum.write(position, total);
    }
  }
  void run(const cuda::BiasGradient& sum) {
    for (int group = 0; group < sum.num_groups; ++group)
      for (std::int64_t column = 0; column < sum.rows.width; column += cuda::kEight) {
        if (sum.num_shares == 1) {
          sum.add(group, column, bias_share(sum, group, column, 0));
          continue;
        }
        for (int share = 0; share < sum.num_shares; ++share)
          sum.keep(share, group, column, bias_share(sum, group, column, share));
        sum.add(group, column, sum.sum_of_shares(group, column));
      }
  }
  void run(const cuda::InputGradient& sum) {
    std::fill_n(sum.counts, sum.num_rows + 1, 0);
    const auto positions = static_cast<std::int32_t>(sum.max_positions);
    for (std::int32_t i = 0; i < positions; ++i)
      if (sum.has(i)) sum.count(i);
    // The device may use any order; here it is last to first.
    for (std::int64_t row = sum.num_rows - 1; row >= 0; --row) sum.place(row);
    for (std::int32_t i = positions - 1; i >= 0; --i)
      if (sum.has(i)) sum.enter(i);
    for (std::int64_t row = 0; row < sum.num_rows; ++row) sum.sort(row);
    for (std::int64_t row = 0; row < sum.num_rows; ++row)
      for (std::int64_t column = 0; column < sum.width; ++column) sum.add(row, column);
  }

 private:
  static cuda::Eight bias_share(const cuda::BiasGradient& sum, int group, std::int64_t column, int share) {
    constexpr int kParts = 32;
    cuda::Eight total{};
    for (int part = 0; part < kParts; ++part)
      cuda::internal::add_to(total, sum.part(group, column, share * kParts + part, sum.num_shares * kParts));
    return total;
  }
};

}  // namespace evenkeel::testing
