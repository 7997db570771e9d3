#include "evenkeel/compute/cuda/internal/generic_kernel.h"
#include "tests/compute/emulation/emulated_experts.h"
#include "tests/compute/emulation/host_machine.h"
#include "tests/compute/emulation/shared_memory.h"
#include "tests/compute/emulation/tiles.h"
#include "tests/compute/emulation/write_warp.h"

namespace evenkeel::testing {

namespace {

struct GenericKernel {
  static constexpr int kTileColumns = cuda::generic::kTileColumns;
  static constexpr int kDotColumns = cuda::generic::kDotColumns;
  using Lanes = std::array<std::array<LaneSums<32>, 32>, 2>;  // [fragment of 16 rows][lane]

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

}  // namespace

FfnOutcome run_generic_tiles(const MoeCase& problem, const EmulationOptions& options) {
  return Emulation<HostMachine<GenericKernel>>(problem, options).run();
}

}  // namespace evenkeel::testing
