#include <string>

#include "evenkeel/balance/cuda/internal/plan_step.h"
#include "evenkeel/balance/cuda/planner.h"
#include "evenkeel/base/error.h"
#include "evenkeel/device/cuda/runtime.cuh"
#include "evenkeel/device/cuda/stream.h"

namespace evenkeel::cuda {

namespace {

constexpr int kThreads = 512;

// What the kernel is given; its pointers are to device memory.
struct Task {
  PlacementView homes;
  PlanRules rules;
  const std::int32_t* counts;
  int parts;
  const std::int32_t* base_load;
  std::int32_t* workspace;  // null: the sums of counts lie in shared memory
  PlanView plan;
};

__global__ void __launch_bounds__(kThreads) plan_kernel(Task task) {
  extern __shared__ std::int32_t shared[];
  __shared__ BlockTeam::Scratch scratch;
  const BlockTeam team(scratch);
  const PlacementView& sizes = task.homes;
  const int placement = placement_integers(sizes);
  const int room = PlannerRoom::integers(sizes.num_experts, sizes.num_slots, sizes.num_ranks);
  std::int32_t* const own_homes = shared + room;
  std::int32_t* const counts = task.workspace != nullptr ? task.workspace : own_homes + placement;
  team.for_each(placement, [&](int i) { own_homes[i] = task.homes.slot_begin[i]; });
  const int pairs = sizes.num_ranks * sizes.num_experts;
  team.for_each(pairs, [&](int i) {
    std::int32_t count = 0;
    for (int part = 0; part < task.parts; ++part) count += task.counts[part * pairs + i];
    counts[i] = count;
  });
  team.sync();
  const PlacementView homes = placement_at(sizes, own_homes);
  StepPlanning(team, homes, task.rules, counts, task.base_load, PlannerRoom::carve(shared, homes))
      .plan(task.plan);
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
  const int least = kInteger * (PlannerRoom::integers(homes.num_experts, homes.num_slots, homes.num_ranks) +
                                placement_integers(homes));
  if (least > most)
    throw Unsupported("planning on a GPU for " + std::to_string(homes.num_experts) + " experts on " +
                      std::to_string(homes.num_ranks) + " ranks: it takes " + std::to_string(least) +
                      " bytes of shared memory, and a block has " + std::to_string(most));
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
  const Task task{homes_, rules_, counts, parts, base_load, counts_in_shared_ ? nullptr : workspace, plan};
  plan_kernel<<<1, kThreads, static_cast<std::size_t>(shared_bytes_),
                static_cast<cudaStream_t>(stream.native())>>>(task);
  EVENKEEL_CUDA_CHECK_LAUNCH("plan a step");
}

}  // namespace evenkeel::cuda
