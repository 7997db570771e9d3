#include "tests/compute/cuda/gpu_experts.h"

namespace evenkeel::testing {

namespace {

DeviceMemory<std::byte> copied(const void* from, std::int64_t bytes) {
  return DeviceMemory<std::byte>(std::span(static_cast<const std::byte*>(from), number(bytes)));
}

template <class T>
DeviceMemory<T> copied(const std::vector<T>& from) {
  return DeviceMemory<T>(std::span<const T>(from));
}

}  // namespace

GpuExperts::GpuExperts(const MoeCase& problem, const GpuOptions& options)
    : problem_(problem),
      shape_(problem.shape().moe.expert),
      options_(options),
      grouped_(problem, options.shuffle, options.gap),
      ffn_(make_cuda_expert_ffn(shape_, {.gradient_type = options.gradients, .kernels = options.kernels})),
      begin_(copied(grouped_.begin)),
      input_row_(copied(grouped_.input_row)),
      output_row_(copied(grouped_.output_row)),
      input_(copied(problem.hidden(0, problem.all_tokens()).data, problem.all_tokens() * shape_.hidden * 2)),
      grad_output_(copied(problem.grad_output(0, problem.all_tokens()).data,
                          problem.all_tokens() * shape_.hidden * 2)),
      output_(grouped_.top_k.experts.size() * number(shape_.hidden * 2)),
      row_weight_(DeviceMemory<float>(grouped_.top_k.weights)),
      grad_weight_(grouped_.top_k.experts.size()),
      grad_input_(number(problem.all_tokens() * shape_.hidden)) {
  std::vector<ExpertWeights> weights;
  std::vector<DeviceExpertGradients> gradients;
  const auto part = [&](const void* from, std::int64_t count) -> const void* {
    if (from == nullptr) return nullptr;
    parts_.push_back(copied(from, count * 2));
    return parts_.back().data();
  };
  for (const ExpertWeights& w : problem.weights()) {
    weights.push_back({part(w.gate_up, shape_.gate_up_rows() * shape_.hidden),
                       part(w.down, shape_.intermediate * shape_.hidden),
                       part(w.gate_up_bias, shape_.gate_up_rows()), part(w.down_bias, shape_.hidden)});
    gradient_blocks_.emplace_back(number(shape_.elements() * bytes_of(options.gradients)));
    std::byte* const block = gradient_blocks_.back().data();
    gradients.push_back(options.gradients == DataType::f32
                            ? gradients_in(shape_, reinterpret_cast<float*>(block))
                            : gradients_in(shape_, reinterpret_cast<bf16*>(block)));
  }
  weights_ = copied(weights);
  gradients_ = copied(gradients);
  groups_ = {.num_groups = grouped_.num_groups(),
             .begin = begin_.data(),
             .weights = weights_.data(),
             .gradients = gradients_.data(),
             .input_row = input_row_.data(),
             .output_row = output_row_.data(),
             .max_positions = grouped_.positions()};
  if (!options.recompute)
    saved_ = DeviceMemory<std::byte>(number(groups_.max_positions * ffn_->saved_bytes_per_position()));
  backward_ = {.input = input_.data(),
               .grad_output = grad_output_.data(),
               .weight = row_weight_.data(),
               .saved = saved_.data(),
               .grad_weight = grad_weight_.data(),
               .grad_input = grad_input_.data(),
               .input_rows = problem.all_tokens()};
  forward_workspace_ = DeviceMemory<std::byte>(
      number(ffn_->forward_workspace_bytes(groups_.num_groups, groups_.max_positions)));
  backward_workspace_ = DeviceMemory<std::byte>(
      number(ffn_->backward_workspace_bytes(groups_.num_groups, groups_.max_positions, backward_)));
}

void GpuExperts::clear() {
  output_.clear();  // rows that no expert writes stay zero
  saved_.poison();
  forward_workspace_.poison();
  backward_workspace_.poison();
  grad_weight_.clear();
  grad_input_.clear();
  for (DeviceMemory<std::byte>& block : gradient_blocks_) block.clear();
}

void GpuExperts::launch() {
  ffn_->forward(groups_, input_.data(), output_.data(), saved_.data(),
                {forward_workspace_.data(), forward_workspace_.size()}, stream_);
  ffn_->backward(groups_, backward_, {backward_workspace_.data(), backward_workspace_.size()}, stream_);
}

FfnOutcome GpuExperts::read() const {
  FfnOutcome outcome = empty_outcome(problem_);
  outcome.results = output_.read();
  outcome.grad_weight = grad_weight_.read();
  outcome.grad_input = grad_input_.read();
  for (std::size_t e = 0; e < gradient_blocks_.size(); ++e) {
    const std::vector<std::byte> block = gradient_blocks_[e].read();
    for (std::size_t i = 0; i < outcome.grad_experts[e].size(); ++i)
      outcome.grad_experts[e][i] = options_.gradients == DataType::f32
                                       ? reinterpret_cast<const float*>(block.data())[i]
                                       : static_cast<float>(reinterpret_cast<const bf16*>(block.data())[i]);
  }
  return outcome;
}

FfnOutcome GpuExperts::run() {
  clear();
  launch();
  return read();
}

FfnOutcome GpuExperts::replay(int replays) {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  const cudaStream_t native = cuda::native(stream_);
  EVENKEEL_CUDA_CALL(cudaStreamBeginCapture, native, cudaStreamCaptureModeThreadLocal);
  launch();
  EVENKEEL_CUDA_CALL(cudaStreamEndCapture, native, &graph);
  EVENKEEL_CUDA_CALL(cudaGraphInstantiate, &executable, graph, 0);
  for (int i = 0; i < replays; ++i) {
    clear();
    EVENKEEL_CUDA_CALL(cudaGraphLaunch, executable, native);
    EVENKEEL_CUDA_CALL(cudaStreamSynchronize, native);
  }
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
  return read();
}

}  // namespace evenkeel::testing
