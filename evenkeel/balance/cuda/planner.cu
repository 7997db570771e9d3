#include <algorithm>
#include <string>

#include "evenkeel/balance/cuda/internal/plan_step.h"
#include "evenkeel/balance/cuda/planner.h"
#include "evenkeel/base/error.h"
#include "evenkeel/device/cuda/runtime.cuh"

namespace evenkeel::cuda {

namespace {

constexpr int kMostThreads = 1024;

// Enough threads to read the counts at once, and no more: all warps of a block share four schedulers.
int threads_for(const PlacementView& homes) {
  constexpr int kFewest = 256, kCountsEach = 4, kWarp = 32;
  const int wanted = homes.num_ranks * homes.num_experts / kCountsEach / kWarp * kWarp;
  return std::clamp(wanted, kFewest, kMostThreads);
}

// The kernel's arguments; all pointers are to device memory.
struct Task {
  PlacementView homes;
  PlanRules rules;
  StepCounts counts;
  bool sums_in_shared;  // the sums of counts are in shared memory, behind the planner's buffers
  const std::int32_t* base_load;
  PlanView plan;
};

__global__ void __launch_bounds__(kMostThreads) plan_kernel(Task task) {
  __shared__ BlockTeam::Scratch scratch;
  const BlockTeam team(scratch);
  StepCounts counts = task.counts;
  if (task.sums_in_shared) counts.sums = &Array(nullptr, PlannerBuffers::integers(task.homes))[0];
  StepPlanning(team, task.rules, counts, PlannerBuffers::in(nullptr, task.homes))
      .plan(task.homes, task.base_load, task.plan);
}

int most_shared_bytes() {
  int gpu = 0, bytes = 0;
  EVENKEEL_CUDA_CALL(cudaGetDevice, &gpu);
  EVENKEEL_CUDA_CALL(cudaDeviceGetAttribute, &bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, gpu);
  cudaFuncAttributes kernel;
  EVENKEEL_CUDA_CALL(cudaFuncGetAttributes, &kernel, reinterpret_cast<const void*>(plan_kernel));
  return bytes - static_cast<int>(kernel.sharedSizeBytes);
}

}  // namespace

CudaPlanner::CudaPlanner(const PlacementView& homes, const PlanRules& rules) : homes_(homes), rules_(rules) {
  constexpr int kInteger = static_cast<int>(sizeof(std::int32_t));
  const int most = most_shared_bytes();
  const int least = kInteger * PlannerBuffers::integers(homes);
  if (least > most)
    throw Unsupported("planning on a GPU for " + std::to_string(homes.num_experts) + " experts on " +
                      std::to_string(homes.num_ranks) + " ranks needs " + std::to_string(least) +
                      " bytes of shared memory, but a block of this GPU has at most " + std::to_string(most));
  const int with_counts = least + kInteger * homes.num_ranks * homes.num_experts;
  counts_in_shared_ = with_counts <= most;
  shared_bytes_ = counts_in_shared_ ? with_counts : least;
  EVENKEEL_CUDA_CALL(cudaFuncSetAttribute, reinterpret_cast<const void*>(plan_kernel),
                     cudaFuncAttributeMaxDynamicSharedMemorySize, most);
}

std::int64_t CudaPlanner::workspace_integers() const {
  return counts_in_shared_ ? 0 : std::int64_t{homes_.num_ranks} * homes_.num_experts;
}

void CudaPlanner::plan(const std::int32_t* counts, int parts, const std::int32_t* base_load,
                       std::int32_t* workspace, const PlanView& plan, CudaStream& stream) const {
  const bool sums = rules_.kind == PlannerOptions::Kind::level;
  const StepCounts all{counts, parts, sums && !counts_in_shared_ ? workspace : nullptr};
  const Task task{homes_, rules_, all, sums && counts_in_shared_, base_load, plan};
  plan_kernel<<<1, threads_for(homes_), static_cast<std::size_t>(shared_bytes_), native(stream)>>>(task);
  EVENKEEL_CUDA_CHECK_LAUNCH("plan a step");
}

}  // namespace evenkeel::cuda
