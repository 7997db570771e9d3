#include "tests/layer/cuda/rank_on_gpu.h"

#include <algorithm>
#include <cstring>

#include "evenkeel/layer/internal/expert_parts.h"

namespace evenkeel::testing {

namespace {

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

DeviceMemory<std::byte> upload(const void* from, std::int64_t bytes) {
  return DeviceMemory<std::byte>(std::span(static_cast<const std::byte*>(from), at(bytes)));
}

template <class T>
void overwrite(const DeviceMemory<T>& memory, std::span<const T> values) {
  if (!values.empty())
    EVENKEEL_CUDA_CALL(cudaMemcpy, memory.data(), values.data(), values.size_bytes(), cudaMemcpyDefault);
}

LayerPlacement placement_of(const CudaRunOptions& options, int experts, int ranks) {
  return options.homes.empty() ? LayerPlacement::contiguous(experts, ranks)
                               : LayerPlacement(options.homes, ranks);
}

}  // namespace

LayerOnGpu::LayerOnGpu(const MoeCase& problem, Communicator& comm, const CudaRunOptions& options)
    : expert_(problem.shape().moe.expert),
      rank_(comm.rank()),
      arena_(Device::cuda(0), options.budget),
      placement_(placement_of(options, problem.shape().moe.num_experts, comm.size())),
      layer_(comm, arena_, problem.shape().moe, placement_,
             {.planner = options.planner,
              .max_tokens = std::max<std::int64_t>(1, std::ranges::max(problem.shape().tokens)),
              .with_backward = options.backward,
              .states_in_flight = options.states_in_flight,
              .device = on_gpu(stream_, {.borrow_slots = options.borrow_slots, .rounds = options.rounds})}) {
  set_experts(problem);
}

void LayerOnGpu::set_experts(const MoeCase& problem) {
  const auto elements = internal::part_elements(expert_);
  const auto natives = placement_.natives(rank_);
  std::vector<ExpertWeights> weights;
  for (const ExpertWeights& own : problem.weights_of(natives)) {
    const void* const tensors[] = {own.gate_up, own.down, own.gate_up_bias, own.down_bias};
    void* parts[4] = {};
    float* sums[4] = {};
    for (std::size_t part = 0; part < 4; ++part) {
      if (elements[part] > 0) {
        tensors_.push_back(upload(tensors[part], 2 * elements[part]));
        parts[part] = tensors_.back().data();
      }
      gradients_.emplace_back(at(elements[part]));
      sums[part] = gradients_.back().data();
    }
    const bool owned = is_owner(natives[weights.size()]);
    weights.push_back({parts[0], parts[1], parts[2], parts[3]});
    native_gradients_.push_back(owned ? ExpertGradients{sums[0], sums[1], sums[2], sums[3]}
                                      : ExpertGradients{});
  }
  layer_.set_weights(weights);
}

void LayerOnGpu::clear_gradients() {
  for (DeviceMemory<float>& tensor : gradients_) tensor.clear();
}

void LayerOnGpu::read(MoeResult& result) const {
  const auto natives = placement_.natives(rank_);
  for (std::size_t i = 0; i < natives.size(); ++i) {
    if (!is_owner(natives[i])) continue;
    const std::size_t e = natives[i].offset();
    result.gate_up[e] = gradients_[4 * i].read();
    result.down[e] = gradients_[4 * i + 1].read();
    result.gate_up_bias[e] = gradients_[4 * i + 2].read();
    result.down_bias[e] = gradients_[4 * i + 3].read();
  }
}

StepOnGpu::StepOnGpu(const MoeCase& problem, RankId rank)
    : rank_(rank.value()),
      top_k_(problem.shape().moe.top_k),
      columns_(problem.shape().moe.expert.hidden),
      first_(problem.first_token(rank_)),
      tokens_(problem.top_k_of(rank_).tokens),
      hidden_(upload(problem.hidden(first_, tokens_).data, 2 * tokens_ * columns_)),
      grad_output_(upload(problem.grad_output(first_, tokens_).data, 2 * tokens_ * columns_)),
      output_(at(2 * tokens_ * columns_)),
      grad_hidden_(at(2 * tokens_ * columns_)),
      experts_(at(tokens_ * top_k_)),
      weights_(at(tokens_ * top_k_)),
      grad_weights_(at(tokens_ * top_k_)) {
  choose(problem);
}

void StepOnGpu::choose(const MoeCase& problem) {
  const TopK top_k = problem.top_k_of(rank_);
  overwrite(experts_, top_k.experts);
  overwrite(weights_, top_k.weights);
  output_.poison();
  grad_hidden_.poison();
  grad_weights_.poison();
}

ForwardState StepOnGpu::forward(LayerOnGpu& layer) {
  const auto choices = at(tokens_ * top_k_);
  const TopK top_k{tokens_, top_k_, {experts_.data(), choices}, {weights_.data(), choices}};
  return layer.layer().forward({hidden_.data(), tokens_, columns_, DataType::bf16}, top_k,
                               {output_.data(), tokens_, columns_, DataType::bf16});
}

void StepOnGpu::backward(LayerOnGpu& layer, ForwardState state) {
  layer.layer().backward(std::move(state), {grad_output_.data(), tokens_, columns_, DataType::bf16},
                         {{grad_hidden_.data(), tokens_, columns_, DataType::bf16},
                          {grad_weights_.data(), at(tokens_ * top_k_)},
                          layer.gradients()});
}

void StepOnGpu::read(MoeResult& result, bool backward) const {
  const auto copy = [&](const DeviceMemory<std::byte>& from, Tensor& to) {
    if (tokens_ > 0) std::memcpy(to.data(first_ * columns_), from.read().data(), from.size());
  };
  copy(output_, result.output);
  if (!backward) return;
  copy(grad_hidden_, result.grad_hidden);
  std::ranges::copy(grad_weights_.read(), result.grad_router_weights.begin() + first_ * top_k_);
}

}  // namespace evenkeel::testing
