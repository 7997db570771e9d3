// Writes a warp's sums with the kernels' own code, one lane after another.
#pragma once

#include <array>
#include <vector>

#include "evenkeel/compute/cuda/internal/write_tile.h"

namespace evenkeel::testing {

// Emulates shuffles among the lanes of a quad: each lane's code runs once to learn the values it sends, then
// again with the values it receives.
class QuadReplay {
 public:
  // Calls run_lane(lane in the quad, is_last, exchange) for each lane, `rounds` + 1 times. Only the last
  // result counts.
  template <class Run>
  static void run(int rounds, const Run& run_lane) {
    std::array<std::vector<float>, 4> sent;
    for (int round = 0; round <= rounds; ++round) {
      std::array<std::vector<float>, 4> now;
      for (std::size_t lane = 0; lane < 4; ++lane)
        run_lane(static_cast<int>(lane), round == rounds, [&](float value, int mask) {
          now[lane].push_back(value);
          const auto& theirs = sent[lane ^ static_cast<std::size_t>(mask)];
          return round == 0 ? 0.0f : theirs[now[lane].size() - 1];
        });
      sent = now;
    }
  }
};

// A product that writes nothing.
template <class Product>
struct Silent : Product {
  bool has_row(const cuda::Tile&, int) const { return false; }
};

// Writes a warp's sums by write_row(). `first_row(lane)` is the row of a lane's first half.
template <cuda::Lines kLines, int kSegments, int kDotColumns, class Product, class Sums, class FirstRow>
void write_warp(const Product& product, const cuda::Tile& tile, std::int64_t first, const Sums& sums,
                const FirstRow& first_row) {
  const auto write = [&]<int kHalf>() {
    for (int quad = 0; quad < 8; ++quad) {
      std::array<float, 4> dots{};
      QuadReplay::run(2, [&](int in_quad, bool is_last, const auto& exchange) {
        const int lane = 4 * quad + in_quad;
        const auto& own = sums[static_cast<std::size_t>(lane)];
        const int row = first_row(lane) + 8 * kHalf;
        const auto write_as = [&]<class Written>(const Written& written) {
          const auto of_lane = cuda::LaneRow<Written>::at(written, tile, row, first, lane);
          return cuda::write_row<kLines, kSegments, kHalf>(written, of_lane, lane, own.numbers, exchange);
        };
        if (is_last)
          dots[static_cast<std::size_t>(in_quad)] = write_as(product);
        else
          write_as(Silent<Product>{product});
      });
      if constexpr (Product::Epilogue::kDots)
        cuda::keep_dot<kDotColumns>(product, tile, first_row(4 * quad) + 8 * kHalf, first,
                                    (dots[0] + dots[1]) + (dots[2] + dots[3]));
    }
  };
  write.template operator()<0>();
  write.template operator()<1>();
}

template <int kCount>
struct LaneSums {
  float numbers[kCount] = {};
};

}  // namespace evenkeel::testing
