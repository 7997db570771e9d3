// Copies weights to the ranks that borrow them, and adds their gradients on the owners.
#include "evenkeel/exchange/cuda/device_exchange.h"
#include "evenkeel/exchange/cuda/internal/launch.cuh"
#include "evenkeel/exchange/cuda/internal/returning.h"
#include "evenkeel/exchange/cuda/weight_copies.h"

namespace evenkeel::cuda {

namespace {

// Blocks per expert, over its elements; the grid's other dimension is the expert.
constexpr unsigned kBlocksAnExpert = 128;

// Copies n two-byte elements, 16 bytes at a time if both pointers are aligned.
__device__ void copy_elements(const std::uint16_t* from, std::uint16_t* to, std::int64_t n) {
  const auto bits = reinterpret_cast<std::uintptr_t>(from) | reinterpret_cast<std::uintptr_t>(to);
  const std::int64_t wide = bits % sizeof(uint4) == 0 ? n / 8 : 0;
  for_grid(wide, [&](std::int64_t i) {
    reinterpret_cast<uint4*>(to)[i] = reinterpret_cast<const uint4*>(from)[i];
  });
  for_grid(n - 8 * wide, [&](std::int64_t i) { to[8 * wide + i] = from[8 * wide + i]; });
}

__global__ void __launch_bounds__(kThreads)
    borrow_kernel(ChunkWork work, ExpertLayout layout, int round, std::uint16_t* slots) {
  const int slot = static_cast<int>(blockIdx.y);
  if (!is_sent(work.shape, work.step, work.index, round, slot)) return;
  const int borrowed = round * work.shape.borrow_slots + slot;
  const std::int32_t expert = work.step.borrowed_expert[borrowed];
  const ExpertTensors& weights = work.peers.views[work.step.borrowed_from[borrowed]].weights[expert];
  for (int part = 0; part < 4; ++part)
    copy_elements(static_cast<const std::uint16_t*>(weights.part[part]),
                  slots + slot * layout.block() + layout.begin(part), layout.elements[part]);
}

__global__ void __launch_bounds__(kThreads)
    return_kernel(ChunkWork work, PlacementView homes, ExpertLayout layout, const ExpertTensors* gradients) {
  const int native = static_cast<int>(blockIdx.y);
  const int slot = homes.slot_begin[work.shape.me] + native;
  if (homes.slot_copy[slot] != 0) return;  // another rank owns the expert and adds its gradients
  for_each_part(work.shape, homes, work.step, homes.slot_expert[slot], [&](int rank, int block) {
    const float* const came = work.peers.views[rank].foreign_gradients + block * layout.block();
    for (int part = 0; part < 4; ++part) {
      auto* const own = static_cast<float*>(gradients[native].part[part]);
      const float* const theirs = came + layout.begin(part);
      for_grid(layout.elements[part], [&](std::int64_t i) { own[i] += theirs[i]; });
    }
  });
}

}  // namespace

void borrow_weights(const ChunkWork& work, const ExpertLayout& layout, int round, void* slots,
                    CudaStream& stream) {
  if (work.shape.borrow_slots == 0) return;
  const dim3 grid(kBlocksAnExpert, static_cast<unsigned>(work.shape.borrow_slots));
  borrow_kernel<<<grid, kThreads, 0, native(stream)>>>(work, layout, round,
                                                       static_cast<std::uint16_t*>(slots));
  EVENKEEL_CUDA_CHECK_LAUNCH("borrow weights");
}

void return_gradients(const ChunkWork& work, const PlacementView& homes, const ExpertLayout& layout,
                      const ExpertTensors* gradients, CudaStream& stream) {
  if (work.shape.num_natives == 0) return;
  const dim3 grid(kBlocksAnExpert, static_cast<unsigned>(work.shape.num_natives));
  return_kernel<<<grid, kThreads, 0, native(stream)>>>(work, homes, layout, gradients);
  EVENKEEL_CUDA_CHECK_LAUNCH("return gradients");
}

}  // namespace evenkeel::cuda
