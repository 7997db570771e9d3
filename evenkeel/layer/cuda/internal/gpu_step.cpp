// The kernel launches of a step.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <optional>

#include "evenkeel/base/error.h"
#include "evenkeel/device/cuda/runtime.cuh"
#include "evenkeel/exchange/cuda/weight_copies.h"
#include "evenkeel/layer/cuda/internal/gpu_layer.h"
#include "evenkeel/layer/cuda/internal/step_order.h"

namespace evenkeel::internal {

using cuda::ChunkWork;
using cuda::StateBuffers;

ChunkWork GpuLayer::work(const StateBuffers& buffers, const TopK& top_k, int chunk) const {
  const auto turn = static_cast<std::size_t>(chunk % 2);
  ChunkWork work;
  work.shape = route();
  work.slices = slices(buffers, top_k);
  work.step = buffers.step;
  work.chunk = buffers_.chunk;
  work.outbox = buffers_.outbox[turn];
  work.peers = {buffers_.outboxes[turn], buffers_.views};
  work.index = chunk;
  return work;
}

DeviceGroups GpuLayer::groups(int round) const {
  const cuda::RouteShape& shape = route();
  const int first = round == 0 ? 0 : shape.num_natives + round * shape.borrow_slots;
  DeviceGroups groups;
  groups.num_groups = round == 0 ? shape.num_natives + shape.borrow_slots : shape.borrow_slots;
  groups.begin = buffers_.chunk.group_begin + first;
  groups.weights = buffers_.group_weights + first;
  groups.gradients = buffers_.group_gradients == nullptr ? nullptr : buffers_.group_gradients + first;
  groups.input_row = buffers_.chunk.input_row;
  groups.output_row = buffers_.chunk.output_row;
  groups.max_positions = shape.most_positions;
  return groups;
}

// The launches that order_forward() and order_backward() share; the classes below add the others.
class GpuLayer::Step {
 public:
  Step(GpuLayer& layer, const GpuState& state)
      : layer_(layer), state_(layer.buffers_.states[state.slot()]), top_k_(state.top_k) {}

  void sync() { layer_.barrier_.sync(layer_.stream_); }
  void borrow_beside() {
    chunk_ = layer_.work(state_, top_k_, 0);
    weights_.emplace(layer_.stream_, layer_.side_);
    borrow(0, layer_.side_);
  }
  void borrow(int round) { borrow(round, layer_.stream_); }
  void deal(int index) {
    chunk_ = layer_.work(state_, top_k_, index);
    cuda::deal_and_send(chunk_, layer_.stream_);
  }

 protected:
  void receive_rows() {
    cuda::receive(chunk_, layer_.stream_);
    cuda::gather_rows(chunk_, cuda::TokenRows::hidden, columns(), layer_.buffers_.rows, layer_.stream_);
  }
  // Calls run() with the groups of a round, after their weights have arrived.
  template <class Run>
  void run_round(int round, const Run& run) {
    weights_.reset();
    const DeviceGroups groups = layer_.groups(round);
    if (groups.num_groups > 0) run(groups);
  }
  std::int64_t columns() const { return layer_.parts_.shape.expert.hidden; }

  GpuLayer& layer_;
  const StateBuffers& state_;
  const TopK& top_k_;
  ChunkWork chunk_;

 private:
  void borrow(int round, CudaStream& stream) {
    cuda::borrow_weights(chunk_, layer_.buffer_shape_.layout, round, layer_.buffers_.slot_weights, stream);
  }

  std::optional<StreamFork> weights_;  // set while weights are copied in parallel with tokens
};

class GpuLayer::ForwardStep : public Step {
 public:
  ForwardStep(GpuLayer& layer, const GpuState& state, void* output)
      : Step(layer, state), hidden_(state.hidden.data), output_(output) {}

  void publish() {
    cuda::publish_tensors(layer_.buffers_.tensors, {hidden_, top_k_.weights.data(), nullptr}, layer_.stream_);
  }
  void count() {
    cuda::count_slices(layer_.route(), layer_.slices(state_, top_k_), layer_.buffers_.block_counts,
                       layer_.stream_);
  }
  // Ranks agree without further messages: each gathers the counts and makes the same plan from them.
  void plan() {
    const cuda::Peers peers{layer_.buffers_.outboxes[0], layer_.buffers_.views};
    cuda::gather_counts(layer_.route(), peers, state_.counts, layer_.stream_);
    layer_.planner_->plan(state_.counts, layer_.route().most_chunks, nullptr, layer_.buffers_.planner,
                          state_.step.plan, layer_.stream_);
    cuda::prepare_step(layer_.route(), layer_.homes_, state_.step, layer_.stream_);
  }
  void receive(int) { receive_rows(); }
  void run_experts(int round) {
    run_round(round, [&](const DeviceGroups& groups) {
      layer_.ffn_->forward(groups, layer_.buffers_.rows, layer_.buffers_.exchanged, nullptr,
                           layer_.workspace(), layer_.stream_);
    });
  }
  void combine(int) { cuda::combine(chunk_, top_k_.weights.data(), columns(), output_, layer_.stream_); }

 private:
  const void* hidden_;
  void* output_;
};

void GpuLayer::forward(StepState& state, ConstRows hidden, const TopK& top_k, Rows output) {
  state.hidden = hidden;
  state.top_k = top_k;
  const cuda::PeerAccessScope scope = barrier_.scope();
  ForwardStep step(*this, static_cast<const GpuState&>(state), output.data);
  cuda::order_forward(step, route().most_chunks, rounds());
}

DeviceBackward GpuLayer::backward_call() const {
  DeviceBackward call;
  call.input = buffers_.rows;
  call.grad_output = buffers_.exchanged;
  call.weight = buffers_.weights;
  call.grad_weight = buffers_.weight_gradients;
  call.grad_input = buffers_.row_gradients;
  call.input_rows = route().most_positions;
  return call;
}

class GpuLayer::BackwardStep : public Step {
 public:
  BackwardStep(GpuLayer& layer, const GpuState& state, const void* grad_output, const MoeGradients& gradients)
      : Step(layer, state),
        tensors_{state.hidden.data, state.top_k.weights.data(), grad_output},
        grad_hidden_(gradients.hidden.data),
        grad_weights_(gradients.router_weights.data()) {}

  void publish() { cuda::publish_tensors(layer_.buffers_.tensors, tensors_, layer_.stream_); }
  void clear() {
    EVENKEEL_CUDA_CALL(cudaMemsetAsync, layer_.buffers_.foreign_gradients, 0,
                       static_cast<std::size_t>(layer_.buffer_shape_.foreign_gradients()) * sizeof(float),
                       cuda::native(layer_.stream_));
  }
  void receive(int) {
    receive_rows();
    cuda::gather_rows(chunk_, cuda::TokenRows::grad_output, columns(), layer_.buffers_.exchanged,
                      layer_.stream_);
    cuda::gather_weights(chunk_, layer_.buffers_.weights, layer_.stream_);
    cuda::zero_rows(chunk_, columns(), layer_.buffers_.row_gradients, layer_.stream_);
  }
  void run_experts(int round) {
    run_round(round, [&](const DeviceGroups& groups) {
      layer_.ffn_->backward(groups, layer_.backward_call(), layer_.workspace(), layer_.stream_);
    });
  }
  void combine(int) {
    cuda::combine_gradients(chunk_, columns(), grad_hidden_, grad_weights_, layer_.stream_);
  }
  void return_gradients() {
    cuda::return_gradients(chunk_, layer_.homes_, layer_.buffer_shape_.layout,
                           layer_.buffers_.native_gradients, layer_.stream_);
  }

 private:
  cuda::StepTensors tensors_;
  void* grad_hidden_;
  float* grad_weights_;
};

void GpuLayer::backward(StepState& state, ConstRows grad_output, const MoeGradients& gradients) {
  set_gradients(gradients.experts);
  const cuda::PeerAccessScope scope = barrier_.scope();
  BackwardStep step(*this, static_cast<const GpuState&>(state), grad_output.data, gradients);
  cuda::order_backward(step, route().most_chunks, rounds());
}

StepState* GpuLayer::take_state() {
  if (free_.empty()) return nullptr;
  StepState* const state = free_.back().release();
  free_.pop_back();
  return state;
}

StepReport GpuLayer::report(const StepState& state) {
  const cuda::StepView& step = buffers_.states[static_cast<const GpuState&>(state).slot()].step;
  std::int32_t transfers = 0, fell_back_to_ep = 0, chunks = 0;
  std::vector<std::int32_t> borrowed(static_cast<std::size_t>(route().most_borrowed()));
  std::vector<std::int32_t> rank_loads(static_cast<std::size_t>(parts_.comm.size()));
  static_cast<void>(stream_.native());
  stream_.copy(&transfers, step.plan.num_transfers, sizeof transfers);
  stream_.copy(&fell_back_to_ep, step.plan.fell_back_to_ep, sizeof fell_back_to_ep);
  stream_.copy(&chunks, step.num_chunks, sizeof chunks);
  stream_.copy(borrowed.data(), step.borrowed_expert, borrowed.size() * sizeof(std::int32_t));
  stream_.copy(rank_loads.data(), step.plan.rank_loads, rank_loads.size() * sizeof(std::int32_t));
  stream_.synchronize();
  StepReport report;
  report.transfers = transfers;
  report.reason = fell_back_to_ep != 0 ? StepReason::no_slots : reason_of_plan(transfers > 0);
  report.chunks = chunks;
  report.borrowed = static_cast<int>(std::ranges::count_if(borrowed, [](int e) { return e >= 0; }));
  report.weights_sent = cuda::weight_copies(report.borrowed, route().borrow_slots, chunks);
  report.rank_loads.assign(rank_loads.begin(), rank_loads.end());
  return report;
}

}  // namespace evenkeel::internal
