// A step's launches.
#include <cuda_runtime_api.h>

#include <optional>

#include "evenkeel/base/error.h"
#include "evenkeel/device/cuda/runtime.cuh"
#include "evenkeel/layer/cuda/internal/layer_body.h"
#include "evenkeel/layer/cuda/internal/step_order.h"

namespace evenkeel {

using cuda::ChunkWork;
using cuda::StateBuffers;

ChunkWork CudaMoeLayer::Body::work(const StateBuffers& state, const DeviceTopK& top_k, int chunk) const {
  const auto turn = static_cast<std::size_t>(chunk % 2);
  ChunkWork work;
  work.shape = route();
  work.slices = slices(state, top_k);
  work.step = state.step;
  work.chunk = buffers_.chunk;
  work.outbox = buffers_.outbox[turn];
  work.peers = {buffers_.outboxes[turn], buffers_.views};
  work.index = chunk;
  return work;
}

DeviceGroups CudaMoeLayer::Body::groups(int round) const {
  const cuda::RouteShape& shape = route();
  const int first = round == 0 ? 0 : shape.num_natives + round * shape.places;
  DeviceGroups groups;
  groups.num_groups = round == 0 ? shape.num_natives + shape.places : shape.places;
  groups.begin = buffers_.chunk.group_begin + first;
  groups.weights = buffers_.group_weights + first;
  groups.gradients = buffers_.group_gradients == nullptr ? nullptr : buffers_.group_gradients + first;
  groups.input_row = buffers_.chunk.input_row;
  groups.output_row = buffers_.chunk.output_row;
  groups.max_positions = shape.most_positions;
  return groups;
}

// Launches that order_forward() and order_backward() both call. Each has more of its own below.
class CudaMoeLayer::Body::Step {
 public:
  Step(Body& body, const DeviceTopK& top_k, std::size_t slot)
      : body_(body), state_(body.buffers_.states[slot]), top_k_(top_k) {}

  void sync() { body_.barrier_.sync(body_.stream_); }
  void borrow_beside() {
    chunk_ = body_.work(state_, top_k_, 0);
    weights_.emplace(body_.stream_, body_.side_);
    borrow(0, body_.side_);
  }
  void borrow(int round) { borrow(round, body_.stream_); }
  void deal(int index) {
    chunk_ = body_.work(state_, top_k_, index);
    cuda::deal_and_send(chunk_, body_.stream_);
  }

 protected:
  void receive_rows() {
    cuda::receive(chunk_, body_.stream_);
    cuda::gather_rows(chunk_, cuda::TokenRows::hidden, columns(), body_.buffers_.rows, body_.stream_);
  }
  // With a round's groups, whose weights are here by then.
  template <class Run>
  void run_round(int round, const Run& run) {
    weights_.reset();
    const DeviceGroups groups = body_.groups(round);
    if (groups.num_groups > 0) run(groups);
  }
  std::int64_t columns() const { return body_.shape_.expert.hidden; }

  Body& body_;
  const StateBuffers& state_;
  const DeviceTopK& top_k_;
  ChunkWork chunk_;

 private:
  void borrow(int round, CudaStream& stream) {
    cuda::borrow_weights(chunk_, body_.buffer_shape_.layout, round, body_.buffers_.places, stream);
  }

  std::optional<Fork> weights_;  // while they travel beside tokens
};

class CudaMoeLayer::Body::ForwardStep : public Step {
 public:
  ForwardStep(Body& body, const DeviceTopK& top_k, std::size_t slot, const void* hidden, void* output)
      : Step(body, top_k, slot), hidden_(hidden), output_(output) {}

  void publish() {
    cuda::publish_tensors(body_.buffers_.tensors, {hidden_, top_k_.weights, nullptr}, body_.stream_);
  }
  void count() {
    cuda::count_slices(body_.route(), body_.slices(state_, top_k_), body_.buffers_.block_counts,
                       body_.stream_);
  }
  // The only agreement between ranks: counts gathered, plan made by each from the same.
  void plan() {
    const cuda::Peers peers{body_.buffers_.outboxes[0], body_.buffers_.views};
    cuda::gather_counts(body_.route(), peers, state_.counts, body_.stream_);
    body_.planner_->plan(state_.counts, body_.route().most_chunks, nullptr, body_.buffers_.planner,
                         state_.step.plan, body_.stream_);
    cuda::prepare_step(body_.route(), body_.homes_, state_.step, body_.stream_);
  }
  void receive(int) { receive_rows(); }
  void run_experts(int round) {
    run_round(round, [&](const DeviceGroups& groups) {
      body_.ffn_->forward(groups, body_.buffers_.rows, body_.buffers_.exchanged, nullptr, body_.workspace(),
                          body_.stream_);
    });
  }
  void combine(int) { cuda::combine(chunk_, top_k_.weights, columns(), output_, body_.stream_); }

 private:
  const void* hidden_;
  void* output_;
};

void CudaMoeLayer::Body::forward(const void* hidden, const DeviceTopK& top_k, void* output,
                                 std::size_t slot) {
  require_input(hidden, top_k);
  const cuda::PeerAccessScope scope = barrier_.scope();
  ForwardStep step(*this, top_k, slot, hidden, output);
  cuda::order_forward(step, route().most_chunks, rounds());
}

DeviceBackward CudaMoeLayer::Body::backward_call() const {
  DeviceBackward call;
  call.input = buffers_.rows;
  call.grad_output = buffers_.exchanged;
  call.weight = buffers_.weights;
  call.grad_weight = buffers_.weight_gradients;
  call.grad_input = buffers_.row_gradients;
  call.input_rows = route().most_positions;
  return call;
}

class CudaMoeLayer::Body::BackwardStep : public Step {
 public:
  BackwardStep(Body& body, const DeviceTopK& top_k, std::size_t slot, const cuda::StepTensors& tensors,
               void* grad_hidden, float* grad_weights)
      : Step(body, top_k, slot), tensors_(tensors), grad_hidden_(grad_hidden), grad_weights_(grad_weights) {}

  void publish() { cuda::publish_tensors(body_.buffers_.tensors, tensors_, body_.stream_); }
  void clear() {
    EVENKEEL_CUDA_CALL(cudaMemsetAsync, body_.buffers_.foreign_gradients, 0,
                       static_cast<std::size_t>(body_.buffer_shape_.foreign_gradients()) * sizeof(float),
                       cuda::native(body_.stream_));
  }
  void receive(int) {
    receive_rows();
    cuda::gather_rows(chunk_, cuda::TokenRows::grad_output, columns(), body_.buffers_.exchanged,
                      body_.stream_);
    cuda::gather_weights(chunk_, body_.buffers_.weights, body_.stream_);
    cuda::zero_rows(chunk_, columns(), body_.buffers_.row_gradients, body_.stream_);
  }
  void run_experts(int round) {
    run_round(round, [&](const DeviceGroups& groups) {
      body_.ffn_->backward(groups, body_.backward_call(), body_.workspace(), body_.stream_);
    });
  }
  void combine(int) {
    cuda::combine_gradients(chunk_, columns(), grad_hidden_, grad_weights_, body_.stream_);
  }
  void return_gradients() {
    cuda::return_gradients(chunk_, body_.homes_, body_.buffer_shape_.layout, body_.buffers_.native_gradients,
                           body_.stream_);
  }

 private:
  cuda::StepTensors tensors_;
  void* grad_hidden_;
  float* grad_weights_;
};

void CudaMoeLayer::Body::backward(const void* hidden, const DeviceTopK& top_k, std::size_t slot,
                                  const void* grad_output, void* grad_hidden, float* grad_router_weights) {
  if (!options_.with_backward)
    throw InvalidArgument("backward", "the layer was made without it", "with_backward");
  const cuda::PeerAccessScope scope = barrier_.scope();
  BackwardStep step(*this, top_k, slot, {hidden, top_k.weights, grad_output}, grad_hidden,
                    grad_router_weights);
  cuda::order_backward(step, route().most_chunks, rounds());
}

}  // namespace evenkeel
