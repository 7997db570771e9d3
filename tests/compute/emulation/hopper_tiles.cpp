#include <gtest/gtest.h>

#include "evenkeel/compute/cuda/internal/hopper_tile.h"
#include "tests/compute/emulation/emulated_experts.h"
#include "tests/compute/emulation/host_machine.h"
#include "tests/compute/emulation/shared_memory.h"
#include "tests/compute/emulation/tiles.h"
#include "tests/compute/emulation/write_warp.h"

namespace evenkeel::testing {

namespace {

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

  // Gives each thread the sums that the PTX manual specifies for wgmma.m64n256 and m64n128.
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

}  // namespace

FfnOutcome run_hopper_tiles(const MoeCase& problem, const EmulationOptions& options) {
  return Emulation<HostMachine<HopperKernel>>(problem, options).run();
}

}  // namespace evenkeel::testing
