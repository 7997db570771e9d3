// The kernels that make a step's tables: thin wrappers around internal/slices.h, deal.h, outward.h and
// inward.h.
#include <algorithm>

#include "evenkeel/base/error.h"
#include "evenkeel/exchange/cuda/device_exchange.h"
#include "evenkeel/exchange/cuda/internal/borrowing.h"
#include "evenkeel/exchange/cuda/internal/chunk_plan.h"
#include "evenkeel/exchange/cuda/internal/deal.h"
#include "evenkeel/exchange/cuda/internal/inward.h"
#include "evenkeel/exchange/cuda/internal/launch.cuh"
#include "evenkeel/exchange/cuda/internal/outward.h"
#include "evenkeel/exchange/cuda/internal/slices.h"

namespace evenkeel::cuda {

namespace {

constexpr int kOneBlock = 512;  // threads of a kernel that runs as a single block
constexpr int kMostLanes = 32;

__global__ void publish_kernel(StepTensors* mine, StepTensors tensors) {
  *mine = tensors;
}

__global__ void count_kernel(RouteShape shape, SliceView slices, int lanes) {
  extern __shared__ std::uint16_t table[];
  __shared__ BlockTeam::Scratch scratch;
  const BlockTeam team(scratch);
  const int slice = static_cast<int>(blockIdx.x);
  const std::int64_t begin = first_token(shape, slices.tokens, slice) * shape.top_k;
  const std::int64_t end = first_token(shape, slices.tokens, slice + 1) * shape.top_k;
  count_slice(team, slices.experts + begin, static_cast<int>(end - begin), shape.num_experts, lanes, table,
              slices.before + std::int64_t{slice + 1} * shape.num_experts, slices.rank_in_slice + begin);
}

// One thread per expert.
__global__ void sum_slices_kernel(RouteShape shape, SliceView slices, std::int32_t* block_counts) {
  const int experts = shape.num_experts;
  for_grid(experts, [&](std::int64_t i) {
    const auto e = static_cast<int>(i);
    sum_slices(e, experts, shape.num_slices, slices.before);
    const int each = shape.num_slices / shape.most_chunks;
    for (int block = 0; block < shape.most_chunks; ++block)
      block_counts[block * experts + e] =
          slices.before[(block + 1) * each * experts + e] - slices.before[block * each * experts + e];
  });
}

__global__ void gather_counts_kernel(RouteShape shape, Peers peers, std::int32_t* counts) {
  const std::int64_t experts = shape.num_experts;
  for_grid(shape.most_chunks * shape.num_ranks * experts, [&](std::int64_t i) {
    const std::int64_t row = i / experts;
    const std::int64_t block = row / shape.num_ranks;
    counts[i] = peers.views[row % shape.num_ranks].block_counts[block * experts + i % experts];
  });
}

__global__ void __launch_bounds__(kOneBlock)
    prepare_kernel(RouteShape shape, PlacementView homes, StepView step) {
  extern __shared__ std::int32_t loads[];
  __shared__ BlockTeam::Scratch scratch;
  const BlockTeam team(scratch);
  borrow(team, shape, homes, step);
  choose_chunks(team, shape, step, loads);
}

__global__ void __launch_bounds__(kOneBlock) deal_kernel(ChunkWork work) {
  __shared__ BlockTeam::Scratch scratch;
  const BlockTeam team(scratch);
  plan_chunk(team, work.shape, work.step, work.index, work.chunk);
  deal_chunk(team, work.shape, work.step, work.chunk, work.outbox);
}

__device__ Outward outward_of(const ChunkWork& work) {
  return Outward(work.shape, work.slices, work.step, work.chunk, work.outbox, work.index);
}

// Number of tiles that hold entries, at least 1.
__device__ int tiles_of(const Outward& outward) {
  const int tiles = (outward.entries() + kTile - 1) / kTile;
  return tiles < 1 ? 1 : tiles;
}

__global__ void place_kernel(ChunkWork work) {
  const Outward outward = outward_of(work);
  for_grid(outward.assignments(), [&](std::int64_t a) { outward.place(static_cast<int>(a)); });
}

__global__ void count_firsts_kernel(ChunkWork work) {
  __shared__ BlockTeam::Scratch scratch;
  const BlockTeam team(scratch);
  const Outward outward = outward_of(work);
  for (int tile = static_cast<int>(blockIdx.x); tile < tiles_of(outward); tile += static_cast<int>(gridDim.x))
    outward.count_firsts(team, tile);
}

__global__ void number_firsts_kernel(ChunkWork work) {
  __shared__ BlockTeam::Scratch scratch;
  const BlockTeam team(scratch);
  const Outward outward = outward_of(work);
  for (int tile = static_cast<int>(blockIdx.x); tile < tiles_of(outward); tile += static_cast<int>(gridDim.x))
    outward.number_firsts(team, tile);
}

__global__ void number_rows_kernel(ChunkWork work) {
  const Outward outward = outward_of(work);
  for_grid(outward.entries(), [&](std::int64_t entry) { outward.number_row(static_cast<int>(entry)); });
  for_grid(work.shape.num_ranks, [&](std::int64_t rank) { outward.count_rows(static_cast<int>(rank)); });
}

__device__ Inward inward_of(const ChunkWork& work) {
  return Inward(work.shape, work.step, work.chunk, work.peers.outboxes);
}

__global__ void number_rows_here_kernel(ChunkWork work) {
  __shared__ BlockTeam::Scratch scratch;
  const BlockTeam team(scratch);
  inward_of(work).number_rows(team);
}

__global__ void fill_kernel(ChunkWork work) {
  const Inward inward = inward_of(work);
  for_grid(inward.positions(), [&](std::int64_t i) { inward.fill(static_cast<int>(i)); });
}

}  // namespace

void publish_tensors(StepTensors* mine, const StepTensors& tensors, CudaStream& stream) {
  publish_kernel<<<1, 1, 0, native(stream)>>>(mine, tensors);
  EVENKEEL_CUDA_CHECK_LAUNCH("publish tensors");
}

void count_slices(const RouteShape& shape, const SliceView& slices, std::int32_t* block_counts,
                  CudaStream& stream) {
  // One lane per table row, as many as fit into the 48 KiB of shared memory that every block may use.
  const std::int64_t row = std::int64_t{shape.num_experts} * static_cast<std::int64_t>(sizeof(std::uint16_t));
  const auto lanes = static_cast<int>(std::clamp<std::int64_t>(47 * 1024 / row, 1, kMostLanes));
  const auto bytes = static_cast<std::size_t>(row * lanes);
  count_kernel<<<static_cast<unsigned>(shape.num_slices), kThreads, bytes, native(stream)>>>(shape, slices,
                                                                                             lanes);
  EVENKEEL_CUDA_CHECK_LAUNCH("count assignments");
  sum_slices_kernel<<<blocks_for(shape.num_experts, 32), 32, 0, native(stream)>>>(shape, slices,
                                                                                  block_counts);
  EVENKEEL_CUDA_CHECK_LAUNCH("sum slices");
}

void gather_counts(const RouteShape& shape, const Peers& peers, std::int32_t* counts, CudaStream& stream) {
  const std::int64_t all = std::int64_t{shape.most_chunks} * shape.num_ranks * shape.num_experts;
  gather_counts_kernel<<<blocks_for(all, kThreads), kThreads, 0, native(stream)>>>(shape, peers, counts);
  EVENKEEL_CUDA_CHECK_LAUNCH("gather counts");
}

void prepare_step(const RouteShape& shape, const PlacementView& homes, const StepView& step,
                  CudaStream& stream) {
  const std::size_t loads = static_cast<std::size_t>(shape.num_ranks) * sizeof(std::int32_t);
  prepare_kernel<<<1, kOneBlock, loads, native(stream)>>>(shape, homes, step);
  EVENKEEL_CUDA_CHECK_LAUNCH("prepare a step");
}

void deal_and_send(const ChunkWork& work, CudaStream& stream) {
  const std::int64_t most = work.shape.most_assignments;
  cudaStream_t s = native(stream);
  deal_kernel<<<1, kOneBlock, 0, s>>>(work);
  EVENKEEL_CUDA_CHECK_LAUNCH("deal");
  place_kernel<<<blocks_for(most, kThreads), kThreads, 0, s>>>(work);
  EVENKEEL_CUDA_CHECK_LAUNCH("place assignments");
  count_firsts_kernel<<<blocks_for(most, kTile), kThreads, 0, s>>>(work);
  EVENKEEL_CUDA_CHECK_LAUNCH("count rows");
  number_firsts_kernel<<<blocks_for(most, kTile), kThreads, 0, s>>>(work);
  EVENKEEL_CUDA_CHECK_LAUNCH("number rows");
  number_rows_kernel<<<blocks_for(most, kThreads), kThreads, 0, s>>>(work);
  EVENKEEL_CUDA_CHECK_LAUNCH("write outbox");
}

void receive(const ChunkWork& work, CudaStream& stream) {
  number_rows_here_kernel<<<1, kThreads, 0, native(stream)>>>(work);
  EVENKEEL_CUDA_CHECK_LAUNCH("number rows here");
  fill_kernel<<<blocks_for(work.shape.most_positions, kThreads), kThreads, 0, native(stream)>>>(work);
  EVENKEEL_CUDA_CHECK_LAUNCH("fill tables");
}

}  // namespace evenkeel::cuda
