// The part of a layer that carries out its steps on a GPU: its memory, its tables and the addresses shared
// with other ranks. A step's launches are in gpu_step.cpp.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "evenkeel/balance/cuda/planner.h"
#include "evenkeel/compute/cuda/expert_ffn.h"
#include "evenkeel/device/cpu/stream.h"
#include "evenkeel/exchange/cuda/device_exchange.h"
#include "evenkeel/exchange/cuda/stream_barrier.h"
#include "evenkeel/layer/cuda/layer_buffers.h"
#include "evenkeel/layer/cuda/on_gpu.h"
#include "evenkeel/layer/internal/layer_backend.h"
#include "evenkeel/plan/cuda/placement_tables.h"

namespace evenkeel::internal {

// A step whose plan and choices are on the device, in the StateBuffers with index slot().
class GpuState final : public StepState {
 public:
  explicit GpuState(std::size_t slot) : slot_(slot) {}
  std::size_t slot() const { return slot_; }
  const StepPlan& plan() const override;
  std::span<const Chunk> chunks() const override;

 private:
  std::size_t slot_;
};

class GpuLayer final : public LayerBackend {
 public:
  GpuLayer(const LayerParts& layer, CudaStream& stream, const GpuOptions& options);
  ~GpuLayer() override;
  GpuLayer(const GpuLayer&) = delete;
  GpuLayer& operator=(const GpuLayer&) = delete;

  void set_weights(std::span<const ExpertWeights> natives) override;
  void set_planner(const PlannerOptions& options) override;
  StepState* take_state() override;
  void give_back(StepState* state) noexcept override { free_.emplace_back(static_cast<GpuState*>(state)); }
  void forward(StepState& state, ConstRows hidden, const TopK& top_k, Rows output) override;
  void backward(StepState& state, ConstRows grad_output, const MoeGradients& gradients) override;
  void await_others() noexcept override;
  StepReport report(const StepState& state) override;
  const BitwiseReport& bitwise() const override { return bits_; }
  std::int64_t least_budget() const override { return least_budget_; }

 private:
  class Step;
  class ForwardStep;
  class BackwardStep;

  const cuda::RouteShape& route() const { return buffer_shape_.route; }
  cuda::BufferShape shape_for(int slots, int chunks, int slices, std::int64_t positions) const;
  std::int64_t most_bytes(int slots, int chunks, std::int64_t positions) const;
  void set_up();
  void fit(std::int64_t budget);
  void upload_tables();
  void exchange_addresses();
  template <class T>
  std::vector<T> gather(const T& mine);
  template <class T>
  void upload(const std::vector<T>& from, T* to);
  void enable_peer_access();
  void set_gradients(std::span<const ExpertGradients> gradients);

  cuda::SliceView slices(const cuda::StateBuffers& buffers, const TopK& top_k) const {
    return {top_k.experts.data(), top_k.tokens, buffers.before, buffers.rank_in_slice};
  }
  cuda::ChunkWork work(const cuda::StateBuffers& buffers, const TopK& top_k, int chunk) const;
  // The groups of a round: the natives and the first slots in round 0, the next slots in later rounds.
  DeviceGroups groups(int round) const;
  std::span<std::byte> workspace() const {
    return {buffers_.workspace, static_cast<std::size_t>(buffer_shape_.workspace_bytes)};
  }
  DeviceBackward backward_call() const;
  int rounds() const { return route().borrow_slots > 0 ? options_.rounds : 1; }

  const LayerParts& parts_;
  CudaStream& stream_;
  const GpuOptions options_;
  std::shared_ptr<const CudaExpertFfn> ffn_;
  cuda::PlacementTables tables_;
  CudaStream side_;  // copies weights in parallel with tokens
  CpuStream host_stream_;
  BitwiseReport bits_;
  std::int64_t least_budget_ = 0;
  cuda::BufferShape buffer_shape_;
  Buffer memory_;
  cuda::LayerBuffers buffers_;
  cuda::PlacementView homes_;  // in device memory
  std::unique_ptr<cuda::CudaPlanner> planner_;
  std::vector<std::unique_ptr<GpuState>> free_;
  std::optional<std::vector<ExpertGradients>> uploaded_gradients_;  // the ones last uploaded to the device
  std::vector<int> gpus_;                                           // by rank
  cuda::StreamBarrier barrier_;  // destroyed first: until then other ranks may read the members above
};

}  // namespace evenkeel::internal
