// Machines that run forward and backward (evenkeel/compute/cuda/internal/passes.h) on the host, with the
// kernels' own indices: who copies what where, which lines and descriptors the instructions are given, who
// writes which sums.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>

#include "evenkeel/compute/cuda/internal/generic_kernel.h"
#include "evenkeel/compute/cuda/internal/hopper_tile.h"
#include "evenkeel/compute/cuda/internal/passes.h"
#include "evenkeel/compute/cuda/internal/write_tile.h"
#include "tests/compute/emulation/shared_memory.h"

namespace evenkeel::testing {

// The lanes of a quad in step with one another: each lane's code is run until what it sends is known, then
// again with what it gets.
class QuadReplay {
 public:
  // run(lane of the quad, exchange) for each lane, `rounds` times; its last run is the one that counts.
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

// What both machines do alike.
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
    // Any order will do on the device: here the last comes first.
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

struct HopperKernel {
  static constexpr int kTileColumns = cuda::hopper::kTileColumns;
  static constexpr int kDotColumns = cuda::hopper::kDotColumns;

  template <class Product>
  static void run_tile(const Product& product, const cuda::Tile& tile) {
    namespace hopper = cuda::hopper;
    SharedMemory memory(hopper::kStages * hopper::kStageBytes);
    std::vector<cuda::hopper::Loader<Product>> loaders(hopper::kWarpgroup);
    for (int thread = 0; thread < hopper::kWarpgroup; ++thread)
      loaders[static_cast<std::size_t>(thread)].begin(product, tile, thread);
    std::vector<float> sums(static_cast<std::size_t>(cuda::kTileRows * kTileColumns));
    for (int block = 0; block < cuda::depth_blocks(product, tile); ++block) {
      const auto stage = static_cast<std::uint32_t>(block % hopper::kStages * hopper::kStageBytes);
      copy_stage(product, tile, loaders, memory, block, stage);
      if (hopper::is_narrow(product, tile))
        multiply_stage<hopper::kNarrowColumns, Product>(memory, stage, sums);
      else
        multiply_stage<hopper::kTileColumns, Product>(memory, stage, sums);
    }
    if (hopper::is_narrow(product, tile))
      write<hopper::kNarrowColumns>(product, tile, sums);
    else
      write<hopper::kTileColumns>(product, tile, sums);
  }

 private:
  template <class Product>
  static void copy_stage(const Product& product, const cuda::Tile& tile,
                         std::vector<cuda::hopper::Loader<Product>>& loaders, SharedMemory& memory, int block,
                         std::uint32_t stage) {
    memory.poison(stage, cuda::hopper::kStageBytes);
    for (std::size_t thread = 0; thread < loaders.size(); ++thread)
      loaders[thread].copy_lines(product, tile, static_cast<int>(thread), block,
                                 [&](std::uint32_t to, const bf16* from, int numbers) {
                                   memory.copy_line(stage + to, from, numbers);
                                 });
    int bytes = 0;
    cuda::hopper::Loader<Product>::copy_boxes(
        product, tile, block, [&](cuda::hopper::BoxSource source, std::uint32_t to, int row, int column) {
          cuda::Rows rows = product.rows_by_position();
          std::int64_t count = product.max_positions;
          if constexpr (Product::kByRows)
            if (source == cuda::hopper::BoxSource::weights) {
              rows = product.weight_rows(tile.group);
              count = product.matrix_rows();
            }
          bulk_copy_box(memory, stage + to, rows.data, count, rows.width, row, column);
          bytes += cuda::kBoxBytes;
        });
    EXPECT_EQ(bytes, cuda::hopper::Loader<Product>::bulk_bytes(product, tile, block));
  }

  template <std::uint32_t kOuter>
  static std::array<std::array<double, 16>, kOuter> numbers_of(const WgmmaOperand<SharedMemory>& operand) {
    std::array<std::array<double, 16>, kOuter> numbers;
    for (std::uint32_t outer = 0; outer < kOuter; ++outer)
      for (std::uint32_t k = 0; k < 16; ++k) numbers[outer][k] = static_cast<double>(operand.at(outer, k));
    return numbers;
  }

  template <int kColumns, class Product>
  static void multiply_stage(const SharedMemory& memory, std::uint32_t stage, std::vector<float>& sums) {
    namespace hopper = cuda::hopper;
    for (int warpgroup = 0; warpgroup < hopper::kMultiplying; ++warpgroup)
      for (std::uint32_t step = 0; step < 4; ++step) {
        const auto operand = [&](std::uint32_t begin, cuda::Major major) {
          return WgmmaOperand(memory,
                              cuda::OperandDescriptor::at(begin) + step * (cuda::depth_step(major) / 16),
                              major == cuda::Major::outer);
        };
        const auto a = numbers_of<64>(operand(stage + hopper::operand_a(warpgroup), Product::kMajorA));
        const auto b = numbers_of<kColumns>(operand(stage + hopper::kOperandB, Product::kMajorB));
        for (std::size_t row = 0; row < 64; ++row)
          for (std::size_t column = 0; column < kColumns; ++column) {
            double terms = 0;
            for (std::size_t k = 0; k < 16; ++k) terms += a[row][k] * b[column][k];
            float& sum = sums[(static_cast<std::size_t>(warpgroup) * 64 + row) * 256 + column];
            sum = static_cast<float>(terms + static_cast<double>(sum));
          }
      }
  }

  // As the PTX manual deals the sums of wgmma.m64n256 and m64n128 to threads.
  template <int kColumns, class Product>
  static void write(const Product& product, const cuda::Tile& tile, const std::vector<float>& sums) {
    namespace hopper = cuda::hopper;
    const std::int64_t first = std::int64_t{tile.col} * Product::template kOutputColumns<kTileColumns>;
    for (int warp = 0; warp < 8; ++warp) {
      std::array<LaneSums<kColumns / 2>, 32> lanes;
      for (std::size_t lane = 0; lane < 32; ++lane)
        for (std::size_t i = 0; i < kColumns / 2; ++i) {
          const std::size_t row = static_cast<std::size_t>(warp) * 16 + lane / 4 + i % 4 / 2 * 8;
          const std::size_t column = i / 4 * 8 + lane % 4 * 2 + i % 2;
          lanes[lane].numbers[i] = sums[row * 256 + column];
        }
      write_warp<cuda::Lines::whole, kColumns / cuda::kSegmentColumns, hopper::kDotColumns>(
          product, tile, first, lanes,
          [&](int lane) { return hopper::row_of(warp / 4, warp % 4 * 32 + lane, 0); });
    }
  }
};

struct GenericKernel {
  static constexpr int kTileColumns = cuda::generic::kTileColumns;
  static constexpr int kDotColumns = cuda::generic::kDotColumns;
  using Lanes = std::array<std::array<LaneSums<32>, 32>, 2>;  // by fragment of 16 rows

  template <class Product>
  static void run_tile(const Product& product, const cuda::Tile& tile) {
    namespace generic = cuda::generic;
    SharedMemory memory(generic::kStageBytes);
    std::vector<Lanes> warps(8);
    for (int block = 0; block < cuda::depth_blocks(product, tile); ++block) {
      memory.poison(0, generic::kStageBytes);
      for (int thread = 0; thread < generic::kThreads; ++thread)
        generic::copy_block(
            product, tile, thread, block,
            [&](std::uint32_t to, const bf16* from, int numbers) { memory.copy_line(to, from, numbers); });
      for (int warp = 0; warp < 8; ++warp)
        multiply_stage<Product>(memory, warp, warps[static_cast<std::size_t>(warp)]);
    }
    for (int warp = 0; warp < 8; ++warp)
      for (int fragment = 0; fragment < generic::kRowFragments; ++fragment)
        write_warp<cuda::Lines::any, generic::kSegments, generic::kDotColumns>(
            product, tile, generic::first_column<Product>(tile, warp),
            warps[static_cast<std::size_t>(warp)][static_cast<std::size_t>(fragment)],
            [&](int lane) { return generic::row_of(warp, lane, fragment); });
  }

 private:
  template <cuda::Major kMajor>
  static Registers load(const SharedMemory& memory, int outer, int depth, bool is_a) {
    std::array<std::uint32_t, 32> lines;
    for (int lane = 0; lane < 32; ++lane)
      lines[static_cast<std::size_t>(lane)] =
          (is_a ? 0u : static_cast<std::uint32_t>(cuda::generic::kBytesA)) +
          cuda::generic::fragment_line<kMajor>(lane, outer, depth, is_a);
    return ldmatrix(memory, lines, kMajor == cuda::Major::outer);
  }

  template <class Product>
  static void multiply_stage(const SharedMemory& memory, int warp, Lanes& sums) {
    namespace generic = cuda::generic;
    for (int depth = 0; depth < cuda::kDepth; depth += 16)
      for (int fragment = 0; fragment < generic::kRowFragments; ++fragment) {
        const Registers a = load<Product::kMajorA>(
            memory, generic::warp_down(warp) * generic::kWarpRows + fragment * 16, depth, true);
        for (int block = 0; block < generic::kBlocks; block += 2) {
          const Registers b = load<Product::kMajorB>(
              memory, generic::column_of_b<Product::kGated>(warp, block), depth, false);
          for (int i = 0; i < 2; ++i) {
            std::array<float*, 32> d;
            for (std::size_t lane = 0; lane < 32; ++lane)
              d[lane] = sums[static_cast<std::size_t>(fragment)][lane].numbers + (block + i) * 4;
            mma(d, a, b, static_cast<std::size_t>(2 * i));
          }
        }
      }
  }
};

using HopperEmulation = HostMachine<HopperKernel>;
using GenericEmulation = HostMachine<GenericKernel>;

}  // namespace evenkeel::testing
