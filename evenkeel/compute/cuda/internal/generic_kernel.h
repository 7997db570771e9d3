// The kernel for any GPU since compute capability 8.0. It multiplies with mma.sync, and copies operands with
// cp.async, kStages - 1 blocks of K before they are multiplied.
#pragma once

#include "evenkeel/compute/cuda/internal/copies.h"
#include "evenkeel/compute/cuda/internal/generic_tile.h"
#include "evenkeel/compute/cuda/internal/write_tile.h"

namespace evenkeel::cuda::generic {

template <class Product>
struct Call {
  Product product;
  TileSchedule schedule;
  int counter = 0;          // index in schedule.drawn
  bool whole_lines = true;  // every row of every operand begins at a multiple of 16 bytes
};

inline constexpr int kSharedBytes = kStages * kStageBytes;

// Copies lines of rows with any alignment, one number at a time.
struct CopyNumbers {
  std::byte* base;
  EVENKEEL_HOST_DEVICE void operator()(std::uint32_t to, const bf16* from, int numbers) const {
    auto* const line = reinterpret_cast<bf16*>(base + to);
    for (int i = 0; i < kLineNumbers; ++i) line[i].bits = i < numbers ? from[i].bits : std::uint16_t{0};
  }
};

#if defined(__CUDACC__)

using Sums = float[kRowFragments][kSegments * kSegmentNumbers];

template <Major kMajor>
__device__ __forceinline__ void load_fragment(std::uint32_t (&to)[4], std::uint32_t line) {
  if constexpr (kMajor == Major::k)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(line)
                 : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(line)
                 : "memory");
}

__device__ __forceinline__ void mma(float* d, const std::uint32_t (&a)[4], std::uint32_t b0,
                                    std::uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

template <class Product>
__device__ __forceinline__ void copy_stage(const Call<Product>& call, const Tile& tile, std::byte* stage,
                                           int block) {
  const int thread = static_cast<int>(threadIdx.x);
  if (call.whole_lines)
    copy_block(call.product, tile, thread, block, CopyLines{shared_address(stage)});
  else
    copy_block(call.product, tile, thread, block, CopyNumbers{stage});
}

template <class Product>
__device__ __forceinline__ void multiply_stage(std::uint32_t stage, int warp, int lane, Sums& sums) {
  EVENKEEL_UNROLL
  for (int depth = 0; depth < kDepth; depth += 16) {
    std::uint32_t a[kRowFragments][4];
    EVENKEEL_UNROLL
    for (int i = 0; i < kRowFragments; ++i)
      load_fragment<Product::kMajorA>(
          a[i],
          stage + fragment_line<Product::kMajorA>(lane, warp_down(warp) * kWarpRows + i * 16, depth, true));
    EVENKEEL_UNROLL
    for (int block = 0; block < kBlocks; block += 2) {
      std::uint32_t b[4];
      const int column = column_of_b<Product::kGated>(warp, block);
      load_fragment<Product::kMajorB>(
          b, stage + kBytesA + fragment_line<Product::kMajorB>(lane, column, depth, false));
      EVENKEEL_UNROLL
      for (int i = 0; i < kRowFragments; ++i) {
        mma(sums[i] + block * kBlockNumbers, a[i], b[0], b[1]);
        mma(sums[i] + (block + 1) * kBlockNumbers, a[i], b[2], b[3]);
      }
    }
  }
}

template <class Product>
__device__ __forceinline__ void multiply_tile(const Call<Product>& call, const Tile& tile, std::byte* stages,
                                              int warp, int lane, Sums& sums) {
  const int blocks = depth_blocks(call.product, tile);
  const auto stage_of = [&](int block) { return stages + block % kStages * kStageBytes; };
  for (int block = 0; block < kStages - 1; ++block) {
    if (block < blocks) copy_stage(call, tile, stage_of(block), block);
    copy_async_commit();
  }
  EVENKEEL_UNROLL
  for (int i = 0; i < kRowFragments; ++i) {
    EVENKEEL_UNROLL
    for (int j = 0; j < kSegments * kSegmentNumbers; ++j) sums[i][j] = 0;
  }
  EVENKEEL_NO_UNROLL
  for (int block = 0; block < blocks; ++block) {
    copy_async_wait<kStages - 2>();
    __syncthreads();  // this block has arrived, and all threads are done with the stage filled next
    const int next = block + kStages - 1;
    if (next < blocks) copy_stage(call, tile, stage_of(next), next);
    copy_async_commit();
    multiply_stage<Product>(shared_address(stage_of(block)), warp, lane, sums);
  }
  copy_async_wait<0>();
  __syncthreads();
}

// Recursive for the same reason as write_segments().
template <int kFragment, class Product>
__device__ __forceinline__ void write_fragments(const Product& product, const Tile& tile, int warp, int lane,
                                                const Sums& sums) {
  const int row = row_of(warp, lane, kFragment);
  const std::int64_t first = first_column<Product>(tile, warp);
  const auto rows = LaneRows<Product>::at(product, tile, row, first, lane);
  write_rows<Lines::any, kSegments, kDotColumns>(product, tile, row, first, lane, rows, sums[kFragment]);
  if constexpr (kFragment + 1 < kRowFragments)
    write_fragments<kFragment + 1>(product, tile, warp, lane, sums);
}

template <class Product>
__global__ void __launch_bounds__(kThreads) multiply_groups(const __grid_constant__ Call<Product> call) {
  extern __shared__ __align__(1024) std::byte stages[];
  __shared__ Tile drawn;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (;;) {
    if (threadIdx.x == 0)
      drawn = call.product.template tile<kTileColumns>(call.schedule, call.schedule.row_tiles,
                                                       atomicAdd(call.schedule.drawn + call.counter, 1));
    __syncthreads();
    const Tile tile = drawn;
    if (tile.group < 0) return;
    Sums sums;
    multiply_tile(call, tile, stages, warp, lane,
                  sums);  // contains barriers, so every thread has read `drawn` by its end
    write_fragments<0>(call.product, tile, warp, lane, sums);
  }
}

#endif  // __CUDACC__

}  // namespace evenkeel::cuda::generic
