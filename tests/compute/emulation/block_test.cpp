// The Hopper kernel's own code with its barriers, rings and roles, run on the host by a block of 384 fibers
// in random order and compared with dense fp64.
#include "tests/compute/emulation/block.h"

#include <gtest/gtest.h>
// Must follow block.h, which defines the CUDA names that these headers use.
#include "evenkeel/compute/cuda/internal/hopper_kernel.h"
#include "tests/compute/emulation/emulated_experts.h"
#include "tests/compute/emulation/host_machine.h"

namespace evenkeel::testing {
namespace {

struct HopperColumns {
  static constexpr int kDotColumns = cuda::hopper::kDotColumns;
};

class BlockMachine : public HostMachine<HopperColumns> {
 public:
  using HostMachine::run;

  template <class Product>
  void run(const Product& product, const cuda::TileSchedule& schedule, int counter) {
    cuda::hopper::Call<Product> call{product, schedule, counter, nullptr, {}};
    const cuda::Rows rows = product.rows_by_position();
    const cuda::EmulatedMap rows_map{rows.data, product.max_positions, rows.width};
    std::memcpy(&call.rows, &rows_map, sizeof rows_map);
    std::vector<cuda::TensorMap> maps(static_cast<std::size_t>(schedule.num_groups));
    if constexpr (Product::kByRows) {
      for (std::size_t g = 0; g < maps.size(); ++g) {
        const cuda::EmulatedMap map{product.weight_rows(static_cast<int>(g)).data, product.matrix_rows(),
                                    product.matrix_columns()};
        std::memcpy(&maps[g], &map, sizeof map);
      }
      call.maps = maps.data();
    }
    // Blocks run one after another. The first block takes all tiles except the first of every other block.
    gridDim.x = 2;
    for (blockIdx.x = 0; blockIdx.x < gridDim.x; ++blockIdx.x) run_block(call);
  }

 private:
  template <class Product>
  void run_block(const cuda::hopper::Call<Product>& call) {
    namespace hopper = cuda::hopper;
    const auto shared = std::make_unique<hopper::Shared>();
    std::memset(shared->stages, 0xff, sizeof shared->stages);
    EmulatedBlock block(hopper::kThreads, ++seed_, reinterpret_cast<std::byte*>(shared.get()));
    block.run([&] {
      hopper::start(call, *shared);
      const int warpgroup = static_cast<int>(threadIdx.x) / hopper::kWarpgroup;
      if (warpgroup == 0)
        hopper::copy_tiles(call, *shared);
      else
        hopper::multiply_tiles(call, *shared, warpgroup - 1);
    });
  }

  inline static std::uint64_t seed_ = 0;  // the last block's seed; each block runs in a different order
};

// run_hopper_tiles() runs tile by tile and sums in the same order, so all bits must be equal. A value read
// too early or too late changes bits, even where it stays within the rounding bound.
void expect_right(const MoeCase& problem, const EmulationOptions& options, const std::string& what) {
  const FfnOutcome outcome = Emulation<BlockMachine>(problem, options).run();
  expect_dense(problem, outcome, what);
  EXPECT_TRUE(outcome == run_hopper_tiles(problem, options)) << what;
}

TEST(HopperBlock, MultipliesEveryProductOfForwardAndBackward) {
  const ExpertShape expert{72, 136, Activation::swiglu, true, DataType::bf16};
  const MoeCase problem({{3, 2, expert}, {70}, 1.0, 0.1}, 17);
  expect_right(problem, {}, "swiglu");
}

TEST(HopperBlock, DoesSoInWhicheverOrderItsThreadsComeToWhatTheyDo) {
  const ExpertShape expert{24, 16, Activation::swiglu, false, DataType::bf16};
  const MoeCase problem({{3, 1, expert}, {20}, 1.0, 0.0}, 23);
  for (int order = 0; order < 15; ++order) expect_right(problem, {}, "order " + std::to_string(order));
}

TEST(HopperBlock, GoesRoundItsRingOfStagesManyTimesAndFromTileToTile) {
  // 6 and 5 blocks of K in forward, 5 in backward; at least 2 row tiles and 2 column tiles.
  const ExpertShape expert{328, 296, Activation::gelu, true, DataType::bf16};
  const MoeCase problem({{2, 1, expert}, {150}, 1.5, 0.0}, 19);
  expect_right(problem, {.recompute = true}, "ring");
}

}  // namespace
}  // namespace evenkeel::testing
