// Kernels that make the schedule, and kernels for the sums that no product computes.
#include <algorithm>

#include "evenkeel/compute/cuda/internal/launch.h"
#include "evenkeel/device/cuda/runtime.cuh"

namespace evenkeel::cuda {

namespace {

constexpr int kWarp = 32;

unsigned blocks_of(std::int64_t count, int each) {
  return static_cast<unsigned>(std::max<std::int64_t>(1, (count + each - 1) / each));
}

__global__ void make_schedule_kernel(TileSchedule schedule) {
  __shared__ BlockTeam::Scratch scratch;
  make_schedule(BlockTeam(scratch), schedule);
}

__device__ float sum_of_warp(float value) {
  for (int step = kWarp / 2; step > 0; step /= 2) value += __shfl_xor_sync(0xffffffffu, value, step);
  return value;
}

// One warp per position.
__global__ void row_weight_kernel(const __grid_constant__ RowWeightGradient sum) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const std::int64_t position = (std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x) / kWarp;
  if (!sum.has(position)) return;
  const auto at = static_cast<std::int32_t>(position);
  const float total = sum_of_warp(sum.part(at, lane, kWarp));
  if (lane == 0) sum.write(at, total);
}

// One block for 256 columns of one group and one share of its positions. The warps divide the share's
// positions, and the first warp adds the warps' sums in order.
constexpr int kBiasWarps = 32;
constexpr int kBiasColumns = kEight * kWarp;
__global__ void bias_kernel(const __grid_constant__ BiasGradient sum) {
  __shared__ Eight parts[kBiasWarps][kWarp];
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int group = static_cast<int>(blockIdx.y), share = static_cast<int>(blockIdx.z);
  const std::int64_t column = std::int64_t{blockIdx.x} * kBiasColumns + kEight * lane;
  if (sum.begin[group] == sum.begin[group + 1]) return;
  const bool has_column = column < sum.rows.width;
  if (has_column)
    parts[warp][lane] = sum.part(group, column, share * kBiasWarps + warp, sum.num_shares * kBiasWarps);
  __syncthreads();
  if (warp != 0 || !has_column) return;
  Eight total{};
  for (int i = 0; i < kBiasWarps; ++i) internal::add_to(total, parts[i][lane]);
  if (sum.num_shares > 1)
    sum.keep(share, group, column, total);
  else
    sum.add(group, column, total);
}

// One thread per eight columns of a group.
__global__ void bias_shares_kernel(const __grid_constant__ BiasGradient sum) {
  const int group = static_cast<int>(blockIdx.y);
  const std::int64_t column = kEight * (std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x);
  if (column >= sum.rows.width || sum.begin[group] == sum.begin[group + 1]) return;
  sum.add(group, column, sum.sum_of_shares(group, column));
}

enum class ListPass { count, place, enter, sort };

template <ListPass kPass>
__global__ void list_kernel(const __grid_constant__ InputGradient sum) {
  const std::int64_t at = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if constexpr (kPass == ListPass::count || kPass == ListPass::enter) {
    if (!sum.has(at)) return;
    kPass == ListPass::count ? sum.count(static_cast<std::int32_t>(at))
                             : sum.enter(static_cast<std::int32_t>(at));
  } else {
    if (at >= sum.num_rows) return;
    kPass == ListPass::place ? sum.place(at) : sum.sort(at);
  }
}

// One block per row.
__global__ void input_kernel(const __grid_constant__ InputGradient sum) {
  const std::int64_t row = blockIdx.x;
  if (sum.counts[row] == 0) return;
  for (std::int64_t column = threadIdx.x; column < sum.width; column += blockDim.x) sum.add(row, column);
}

}  // namespace

void launch_schedule(const TileSchedule& schedule, cudaStream_t stream) {
  make_schedule_kernel<<<1, 512, 0, stream>>>(schedule);
  EVENKEEL_CUDA_CHECK_LAUNCH("the schedule of tiles");
}

void launch(const RowWeightGradient& sum, cudaStream_t stream) {
  constexpr int kThreads = 256;
  row_weight_kernel<<<blocks_of(sum.max_positions, kThreads / kWarp), kThreads, 0, stream>>>(sum);
  EVENKEEL_CUDA_CHECK_LAUNCH("the gradient of row weights");
}

void launch(const BiasGradient& sum, cudaStream_t stream) {
  if (sum.num_groups == 0) return;
  const auto groups = static_cast<unsigned>(sum.num_groups);
  const dim3 grid(blocks_of(sum.rows.width, kBiasColumns), groups, static_cast<unsigned>(sum.num_shares));
  bias_kernel<<<grid, kBiasWarps * kWarp, 0, stream>>>(sum);
  if (sum.num_shares > 1) {
    constexpr int kThreads = 128;
    bias_shares_kernel<<<dim3(blocks_of(sum.rows.width, kEight * kThreads), groups), kThreads, 0, stream>>>(
        sum);
  }
  EVENKEEL_CUDA_CHECK_LAUNCH("the gradient of biases");
}

void launch(const InputGradient& sum, cudaStream_t stream) {
  if (sum.num_rows == 0) return;
  constexpr int kThreads = 256;
  EVENKEEL_CUDA_CALL(cudaMemsetAsync, sum.counts, 0,
                     sizeof(std::int32_t) * static_cast<std::size_t>(sum.num_rows + 1), stream);
  const unsigned by_position = blocks_of(sum.max_positions, kThreads),
                 by_row = blocks_of(sum.num_rows, kThreads);
  list_kernel<ListPass::count><<<by_position, kThreads, 0, stream>>>(sum);
  list_kernel<ListPass::place><<<by_row, kThreads, 0, stream>>>(sum);
  list_kernel<ListPass::enter><<<by_position, kThreads, 0, stream>>>(sum);
  list_kernel<ListPass::sort><<<by_row, kThreads, 0, stream>>>(sum);
  input_kernel<<<static_cast<unsigned>(sum.num_rows), kThreads, 0, stream>>>(sum);
  EVENKEEL_CUDA_CHECK_LAUNCH("the gradient of the input");
}

}  // namespace evenkeel::cuda
