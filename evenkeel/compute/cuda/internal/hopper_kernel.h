// The kernel for compute capability 9.0.
//
// Method      A block stays on its multiprocessor and draws tiles until none is left. Its first warpgroup
//             copies the operands, kStages blocks of K ahead. The other two multiply 64 of the tile's 128
//             rows each, and write the tile while the first already copies the next tile's operands.
//             Indexed rows are copied by cp.async, so a gather costs only the reads of its indices. Weights,
//             and rows in the order of positions, are copied in bulk; weights use one tensor map per group,
//             made by point_maps().
// Order       A stage is full when every copying thread's copies and the bulk copies have arrived. Only the
//             multiplying warps wait for that, and they make the data visible to wgmma. A stage is empty when
//             the instructions of all multiplying warps that read it are done.
//             A wait identifies a phase only by its parity. So no phase may end before all waiters of the
//             previous one have continued: every waiter (or its warp) also arrives at a barrier that the
//             next phase depends on.
#pragma once

#include "evenkeel/compute/cuda/internal/copies.h"
#include "evenkeel/compute/cuda/internal/hopper_tile.h"
#include "evenkeel/compute/cuda/internal/tensor_map.h"
#include "evenkeel/compute/cuda/internal/wgmma.h"
#include "evenkeel/compute/cuda/internal/write_tile.h"

namespace evenkeel::cuda::hopper {

// The most groups whose row_tiles are cached in shared memory, where bisection is fast.
inline constexpr int kCachedGroups = 1024;
inline constexpr int kTileSlots = 2;

template <class Product>
struct Call {
  Product product;
  TileSchedule schedule;
  int counter = 0;                  // index in schedule.drawn
  const TensorMap* maps = nullptr;  // of the product's weights, by group
  TensorMap rows;                   // of the operand whose rows are by position
};

#if defined(__CUDACC__)

struct Shared;

constexpr int kWarp = 32;
constexpr int kCopyingWarps = kWarpgroup / kWarp;
constexpr int kMultiplyingWarps = kMultiplying * kCopyingWarps;
// Registers per thread; a block has 65536. Threads that copy lines of many boxes need more registers; threads
// that multiply and only write sums need fewer.
template <class Product>
constexpr int kCopyingRegisters = Product::kByRows ? 56 : 104;
template <class Product>
constexpr int kMultiplyingRegisters = Product::kByRows ? 224 : 200;

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

struct Shared {
  alignas(1024) std::byte stages[kStages][kStageBytes];
  Barrier full[kStages], empty[kStages];
  Barrier tile_full[kTileSlots], tile_empty[kTileSlots];
  Tile tiles[kTileSlots];
  std::int32_t row_tiles[kCachedGroups + 1];
};

// An index in a ring of kSize entries, and the parity of the current round through the ring.
template <int kSize>
struct RingPlace {
  std::uint32_t at = 0, parity = 0;

  __device__ __forceinline__ void advance() {
    if (++at == kSize) at = 0, parity ^= 1;
  }
};

template <class Product>
__device__ void start(const Call<Product>& call, Shared& shared) {
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      shared.full[i].init((Loader<Product>::kLines ? kWarpgroup : 0) + 1);
      shared.empty[i].init(kMultiplyingWarps);
    }
    for (int i = 0; i < kTileSlots; ++i) {
      shared.tile_full[i].init(1);
      shared.tile_empty[i].init(kThreads / kWarp);
    }
    publish_barriers();
  }
  if (call.schedule.num_groups <= kCachedGroups)
    for (int i = static_cast<int>(threadIdx.x); i <= call.schedule.num_groups; i += kThreads)
      shared.row_tiles[i] = call.schedule.row_tiles[i];
  __syncthreads();
}

// Returns the next tile that the block has drawn. Every thread of the block calls it once per tile.
__device__ __forceinline__ Tile take_tile(Shared& shared, RingPlace<kTileSlots>& slot) {
  shared.tile_full[slot.at].wait(slot.parity);
  const Tile tile = shared.tiles[slot.at];
  __syncwarp();
  if (threadIdx.x % kWarp == 0) shared.tile_empty[slot.at].arrive();
  slot.advance();
  return tile;
}

// One thread draws tiles. It requests the next tile's number early and uses it late, to hide the latency.
template <class Product>
struct Drawer {
  std::int32_t drawn;  // last value of the counter, which does not count each block's first tile

  __device__ __forceinline__ void put(const Call<Product>& call, Shared& shared, RingPlace<kTileSlots> slot) {
    shared.tile_empty[slot.at].wait(slot.parity ^ 1);
    const std::int32_t* row_tiles =
        call.schedule.num_groups <= kCachedGroups ? shared.row_tiles : call.schedule.row_tiles;
    shared.tiles[slot.at] = call.product.template tile<kTileColumns>(call.schedule, row_tiles,
                                                                     drawn + static_cast<int>(gridDim.x));
    shared.tile_full[slot.at].arrive();
    drawn = atomicAdd(call.schedule.drawn + call.counter, 1);
  }
};

template <class Product>
__device__ __forceinline__ void copy_tiles(const Call<Product>& call, Shared& shared) {
  const int thread = static_cast<int>(threadIdx.x);
  if (thread == 0) prefetch_map(&call.rows);
  RingPlace<kTileSlots> slot;
  RingPlace<kStages> stage;
  Drawer<Product> drawer{static_cast<std::int32_t>(blockIdx.x) - static_cast<std::int32_t>(gridDim.x)};
  for (;;) {
    if (thread == 0) drawer.put(call, shared, slot);
    const Tile tile = take_tile(shared, slot);
    if (tile.group < 0) break;
    Loader<Product> loader;
    loader.begin(call.product, tile, thread);
    if constexpr (Product::kByRows)
      if (thread == 0) acquire_map(call.maps + tile.group);
    if (!Loader<Product>::kLines && thread >= kWarp) continue;  // one thread copies everything
    const int blocks = depth_blocks(call.product, tile);
    EVENKEEL_NO_UNROLL
    for (int block = 0; block < blocks; ++block) {
      shared.empty[stage.at].wait(stage.parity ^ 1);
      __syncwarp();
      const std::uint32_t base = shared_address(shared.stages[stage.at]);
      if (thread == 0) {
        shared.full[stage.at].arrive_expecting(Loader<Product>::bulk_bytes(call.product, tile, block));
        Loader<Product>::copy_boxes(
            call.product, tile, block, [&](BoxSource source, std::uint32_t to, int row, int column) {
              const TensorMap* const map = source == BoxSource::weights ? call.maps + tile.group : &call.rows;
              copy_box(base + to, map, row, column, shared.full[stage.at]);
            });
      }
      __syncwarp();
      if constexpr (Loader<Product>::kLines) {
        loader.copy_lines(call.product, tile, thread, block, CopyLines{base});
        copy_async_arrive(shared.full[stage.at]);
      }
      stage.advance();
    }
  }
}

__device__ __forceinline__ void release(Shared& shared, std::uint32_t stage) {
  __syncwarp();
  if (threadIdx.x % kWarp == 0) shared.empty[stage].arrive();
}

// Computes the sums of the warpgroup's 64 rows of a tile, for its first kColumns columns.
template <class Product, int kColumns>
__device__ __forceinline__ void multiply(Shared& shared, RingPlace<kStages>& stage, int warpgroup, int blocks,
                                         float (&sums)[128]) {
  constexpr Major kA = Product::kMajorA;
  constexpr Major kB = Product::kMajorB;
  const std::uint64_t first = OperandDescriptor::at(shared_address(shared.stages[0]));
  std::uint32_t before = 0;
  EVENKEEL_NO_UNROLL
  for (int block = 0; block < blocks; ++block) {
    shared.full[stage.at].wait(stage.parity);
    show_to_wgmma();
    const std::uint64_t here = first + stage.at * (kStageBytes / kLineBytes);
    const std::uint64_t a = here + operand_a(warpgroup) / kLineBytes;
    const std::uint64_t b = here + kOperandB / kLineBytes;
    wgmma_begin();
    EVENKEEL_UNROLL
    for (std::uint32_t step = 0; step < kDepth / kInstructionDepth; ++step)
      wgmma<kA, kB, kColumns>(sums, a + step * (depth_step(kA) / kLineBytes),
                              b + step * (depth_step(kB) / kLineBytes), block > 0 || step > 0);
    wgmma_commit();
    wgmma_wait<1>();
    if (block > 0) release(shared, before);
    before = stage.at;
    stage.advance();
  }
  wgmma_wait<0>();
  keep_in_place(sums);
  release(shared, before);
}

// Computes and writes one thread's part of a tile that is kColumns wide.
template <int kColumns, class Product>
__device__ __forceinline__ void make_tile(const Call<Product>& call, Shared& shared,
                                          RingPlace<kStages>& stage, const Tile& tile, int warpgroup) {
  const int thread = static_cast<int>(threadIdx.x) % kWarpgroup;
  const int row = row_of(warpgroup, thread, 0);
  const std::int64_t first = std::int64_t{tile.col} * Product::template kOutputColumns<kTileColumns>;
  const auto rows = LaneRows<Product>::at(call.product, tile, row, first, thread % kWarp);
  float sums[128];
  multiply<Product, kColumns>(shared, stage, warpgroup, depth_blocks(call.product, tile), sums);
  write_rows<Lines::whole, kColumns / kSegmentColumns, kDotColumns>(call.product, tile, row, first,
                                                                    thread % kWarp, rows, sums);
}

template <class Product>
__device__ __forceinline__ void multiply_tiles(const Call<Product>& call, Shared& shared, int warpgroup) {
  RingPlace<kTileSlots> slot;
  RingPlace<kStages> stage;
  for (;;) {
    const Tile tile = take_tile(shared, slot);
    if (tile.group < 0) break;
    if (is_narrow(call.product, tile))
      make_tile<kNarrowColumns>(call, shared, stage, tile, warpgroup);
    else
      make_tile<kTileColumns>(call, shared, stage, tile, warpgroup);
  }
}

#endif  // __CUDA_ARCH_FEAT_SM90_ALL

// Bytes for alignment, stages, row_tiles, barriers and tiles, rounded up to the alignment.
inline constexpr int kSharedBytes =
    1024 + kStages * kStageBytes + ((kCachedGroups + 1) * 4 + 512 + 1023) / 1024 * 1024;

template <class Product>
__global__ void __launch_bounds__(kThreads, 1) multiply_groups(const __grid_constant__ Call<Product> call) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ std::byte memory[];
  static_assert(kWarpgroup * (kCopyingRegisters<Product> + kMultiplying * kMultiplyingRegisters<Product>) <=
                65536);
  static_assert(sizeof(Shared) + 1024 <= kSharedBytes);
  const std::uint32_t address = shared_address(memory);
  Shared& shared = *reinterpret_cast<Shared*>(memory + ((1024 - address % 1024) % 1024));
  start(call, shared);
  // The shuffle tells the compiler that the value is uniform in a warp, so it can use uniform registers.
  const int warpgroup = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / kWarpgroup, 0);
  if (warpgroup == 0) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kCopyingRegisters<Product>));
    copy_tiles(call, shared);
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kMultiplyingRegisters<Product>));
    multiply_tiles(call, shared, warpgroup - 1);
  }
#endif
}

#endif  // __CUDACC__

}  // namespace evenkeel::cuda::hopper
