// The parts of a layer on a GPU: its memory, its tables and its place among the ranks. Set-up is in
// moe_layer_set_up.cpp, a step in moe_layer_step.cpp.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "evenkeel/balance/cuda/planner.h"
#include "evenkeel/compute/cuda/expert_ffn.h"
#include "evenkeel/device/cpu/stream.h"
#include "evenkeel/exchange/cuda/device_exchange.h"
#include "evenkeel/exchange/cuda/stream_barrier.h"
#include "evenkeel/layer/cuda/layer_buffers.h"
#include "evenkeel/layer/cuda/moe_layer.h"
#include "evenkeel/plan/cuda/placement_tables.h"

namespace evenkeel {

class CudaMoeLayer::Body {
 public:
  Body(Communicator& comm, Arena& arena, CudaStream& stream, const MoeShape& shape, LayerPlacement placement,
       const CudaMoeOptions& options);
  ~Body();
  Body(const Body&) = delete;
  Body& operator=(const Body&) = delete;

  void set_weights(std::span<const ExpertWeights> natives, std::span<const ExpertGradients> gradients);
  std::size_t take_slot();
  void give_slot(std::size_t slot) noexcept { free_slots_.push_back(slot); }
  void forward(const void* hidden, const DeviceTopK& top_k, void* output, std::size_t slot);
  void backward(const void* hidden, const DeviceTopK& top_k, std::size_t slot, const void* grad_output,
                void* grad_hidden, float* grad_router_weights);
  CudaStepReport report(std::size_t slot);
  // Waits until no other rank's work can read this one's memory, or the caller's tensors, any more.
  void await_others() noexcept;
  Communicator& comm() { return comm_; }
  const cuda::RouteShape& route() const { return buffer_shape_.route; }

 private:
  class Step;
  class ForwardStep;
  class BackwardStep;

  cuda::BufferShape shape_for(int places, int chunks, int slices, std::int64_t positions) const;
  void set_up(Arena& arena);
  void fit(std::int64_t budget);
  void upload_tables();
  void meet_peers();
  template <class T>
  std::vector<T> gather(const T& mine);
  template <class T>
  void upload(const std::vector<T>& from, T* to);
  void open_peers();
  void require_experts(std::span<const ExpertWeights> natives,
                       std::span<const ExpertGradients> gradients) const;
  void set_gradients(std::span<const ExpertGradients> gradients);
  bool is_owner(ExpertId expert) const { return placement_.owner(expert) == comm_.rank(); }
  void require_input(const void* hidden, const DeviceTopK& top_k) const;

  cuda::SliceView slices(const cuda::StateBuffers& state, const DeviceTopK& top_k) const {
    return {top_k.experts, top_k.tokens, state.before, state.rank_in_slice};
  }
  cuda::ChunkWork work(const cuda::StateBuffers& state, const DeviceTopK& top_k, int chunk) const;
  // The groups whose weights are at hand in a round: natives and the first places, or the next places.
  DeviceGroups groups(int round) const;
  std::span<std::byte> workspace() const {
    return {buffers_.workspace, static_cast<std::size_t>(buffer_shape_.workspace_bytes)};
  }
  DeviceBackward backward_call() const;
  int rounds() const { return route().places > 0 ? options_.rounds : 1; }

  Communicator& comm_;
  CudaStream& stream_;
  MoeShape shape_;
  LayerPlacement placement_;
  CudaMoeOptions options_;
  std::shared_ptr<const CudaExpertFfn> ffn_;
  cuda::PlacementTables tables_;
  CudaStream side_;  // weights travel beside tokens
  CpuStream words_;
  cuda::BufferShape buffer_shape_;
  Buffer memory_;
  cuda::LayerBuffers buffers_;
  cuda::PlacementView homes_;  // on the device
  std::unique_ptr<cuda::CudaPlanner> planner_;
  std::vector<std::size_t> free_slots_;
  bool weights_set_ = false;
  std::vector<int> gpus_;        // by rank
  cuda::StreamBarrier barrier_;  // the first to end: until then others may read what is above
};

}  // namespace evenkeel
