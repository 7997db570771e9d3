#include "tests/layer/moe_case.h"

#include <algorithm>
#include <cmath>
#include <mutex>
#include <numeric>

#include "evenkeel/comm/thread/run_ranks.h"

namespace evenkeel::testing {

float Tensor::operator[](std::int64_t i) const {
  return type_ == DataType::f32 ? *static_cast<const float*>(data(i))
                                : static_cast<float>(*static_cast<const bf16*>(data(i)));
}

void Tensor::set(std::int64_t i, float value) {
  if (type_ == DataType::f32)
    *static_cast<float*>(data(i)) = value;
  else
    *static_cast<bf16*>(data(i)) = bf16(value);
}

Tensor random_tensor(std::int64_t count, DataType type, float scale, std::mt19937_64& random) {
  Tensor tensor(count, type);
  std::normal_distribution<float> normal(0.0f, scale);
  for (std::int64_t i = 0; i < count; ++i) tensor.set(i, normal(random));
  return tensor;
}

MoeCase::MoeCase(CaseShape shape, std::uint64_t seed) : shape_(std::move(shape)) {
  std::mt19937_64 random(seed);
  const ExpertShape& expert = shape_.moe.expert;
  const std::int64_t experts = shape_.moe.num_experts;
  deal(shape_.tokens);
  hidden_ = random_tensor(all_tokens() * expert.hidden, expert.type, 1.0f, random);
  grad_output_ = random_tensor(all_tokens() * expert.hidden, expert.type, 1.0f, random);
  const float scale = 1.5f / std::sqrt(static_cast<float>(expert.hidden));
  gate_up_ = random_tensor(experts * expert.gate_up_rows() * expert.hidden, expert.type, scale, random);
  down_ = random_tensor(experts * expert.hidden * expert.intermediate, expert.type,
                        1.0f / std::sqrt(static_cast<float>(expert.intermediate)), random);
  gate_up_bias_ = random_tensor(experts * expert.gate_up_rows(), expert.type, 0.5f, random);
  down_bias_ = random_tensor(experts * expert.hidden, expert.type, 0.5f, random);
  point_at_weights();

  std::vector<double> popularity(static_cast<std::size_t>(experts));
  std::normal_distribution<double> normal;
  for (double& p : popularity) p = std::exp(shape_.skew * normal(random));
  std::discrete_distribution<std::int32_t> choose(popularity.begin(), popularity.end());
  std::uniform_real_distribution<double> uniform;
  for (std::int64_t a = 0; a < all_tokens() * shape_.moe.top_k; ++a) {
    ids_.push_back(uniform(random) < shape_.no_expert ? -1 : choose(random));
    router_weights_.push_back(static_cast<float>(0.05 + uniform(random)));
  }
}

void MoeCase::point_at_weights() {
  const ExpertShape& shape = shape_.moe.expert;
  weights_.clear();
  for (std::int64_t e = 0; e < shape_.moe.num_experts; ++e) {
    ExpertWeights weights{gate_up_.data(e * shape.gate_up_rows() * shape.hidden),
                          down_.data(e * shape.hidden * shape.intermediate), nullptr, nullptr};
    if (shape.biases) {
      weights.gate_up_bias = gate_up_bias_.data(e * shape.gate_up_rows());
      weights.down_bias = down_bias_.data(e * shape.hidden);
    }
    weights_.push_back(weights);
  }
}

void MoeCase::deal(std::vector<std::int64_t> tokens) {
  shape_.tokens = std::move(tokens);
  begin_.assign(1, 0);
  for (std::int64_t count : shape_.tokens) begin_.push_back(begin_.back() + count);
}

MoeCase MoeCase::dealt_to(int ranks) const {
  MoeCase other = *this;
  std::vector<std::int64_t> tokens;
  for (std::int64_t r = 0; r < ranks; ++r)
    tokens.push_back((r + 1) * all_tokens() / ranks - r * all_tokens() / ranks);
  other.deal(std::move(tokens));
  other.point_at_weights();
  return other;
}

TopK MoeCase::top_k(std::int64_t begin, std::int64_t end) const {
  const auto k = static_cast<std::size_t>(shape_.moe.top_k);
  const auto first = static_cast<std::size_t>(begin) * k;
  const auto count = static_cast<std::size_t>(end - begin) * k;
  return {end - begin, shape_.moe.top_k, std::span(ids_).subspan(first, count),
          std::span(router_weights_).subspan(first, count)};
}

ConstRows MoeCase::rows(const Tensor& tensor, std::int64_t first, std::int64_t count) const {
  const ExpertShape& expert = shape_.moe.expert;
  return {tensor.data(first * expert.hidden), count, expert.hidden, expert.type};
}

std::vector<ExpertWeights> MoeCase::weights_of(std::span<const ExpertId> experts) const {
  std::vector<ExpertWeights> weights;
  for (ExpertId expert : experts) weights.push_back(weights_[expert.offset()]);
  return weights;
}

DenseResult MoeCase::dense(bool backward) const {
  DenseResult dense = evaluate_dense(shape_.moe.expert, weights_, hidden(0, all_tokens()), top_k(),
                                     backward ? grad_output(0, all_tokens()) : ConstRows{});
  // Fills missing gradients with zeros, so that expected zeros are compared as well.
  const ExpertShape& expert = shape_.moe.expert;
  const auto fill = [](std::vector<double>& numbers, std::int64_t count) {
    if (numbers.empty()) numbers.resize(static_cast<std::size_t>(count));
  };
  for (DenseResult::Expert& grad : dense.grad_experts) {
    fill(grad.gate_up, expert.gate_up_rows() * expert.hidden);
    fill(grad.down, expert.hidden * expert.intermediate);
    fill(grad.gate_up_bias, expert.biases ? expert.gate_up_rows() : 0);
    fill(grad.down_bias, expert.biases ? expert.hidden : 0);
  }
  return dense;
}

namespace {

void make_space(const MoeCase& problem, MoeResult& result) {
  const MoeShape& moe = problem.shape().moe;
  const ExpertShape& shape = moe.expert;
  const auto experts = static_cast<std::size_t>(moe.num_experts);
  result.output = Tensor(problem.all_tokens() * shape.hidden, shape.type);
  result.grad_hidden = result.output;
  result.grad_router_weights.resize(problem.top_k().experts.size());
  const auto zeros = [&](std::int64_t count) {
    return std::vector<std::vector<float>>(experts, std::vector<float>(static_cast<std::size_t>(count)));
  };
  result.gate_up = zeros(shape.gate_up_rows() * shape.hidden);
  result.down = zeros(shape.intermediate * shape.hidden);
  result.gate_up_bias = zeros(shape.gate_up_rows());
  result.down_bias = zeros(shape.hidden);
  result.peak_bytes.resize(static_cast<std::size_t>(problem.ranks()));
}

void clear(MoeResult& result, std::span<const ExpertId> experts) {
  for (ExpertId e : experts)
    for (auto* tensors : {&result.gate_up, &result.down, &result.gate_up_bias, &result.down_bias})
      std::ranges::fill((*tensors)[e.offset()], 0.0f);
}

}  // namespace

MoeResult run(const MoeCase& problem, const RunOptions& options) {
  const MoeShape& moe = problem.shape().moe;
  const ExpertShape& shape = moe.expert;
  MoeResult result;
  make_space(problem, result);
  run_ranks(problem.ranks(), [&](Communicator& comm) {
    const int rank = comm.rank().value();
    const std::int64_t first = problem.first_token(rank);
    const TopK top_k = problem.top_k_of(rank);
    Arena arena(Device::cpu(), options.budget);
    LayerPlacement placement = options.homes.empty()
                                   ? LayerPlacement::contiguous(moe.num_experts, comm.size())
                                   : LayerPlacement(options.homes, comm.size());
    MoeLayer layer(comm, arena, moe, placement,
                   {.planner = options.planner,
                    .max_tokens = std::max<std::int64_t>(1, std::ranges::max(problem.shape().tokens)),
                    .with_backward = options.backward,
                    .device = CpuOptions{.memory = options.memory,
                                         .node_of_rank = options.node_of_rank,
                                         .sum_in_nodes = options.sum_in_nodes}});
    layer.set_weights(problem.weights_of(layer.natives()));
    std::vector<ExpertGradients> gradients;
    for (ExpertId e : layer.natives())
      gradients.push_back({result.gate_up[e.offset()].data(), result.down[e.offset()].data(),
                           result.gate_up_bias[e.offset()].data(), result.down_bias[e.offset()].data()});
    std::vector<ExpertId> owned;
    for (ExpertId e : layer.natives())
      if (placement.owner(e) == comm.rank()) owned.push_back(e);
    for (int step = 0; step < options.steps; ++step) {
      clear(result, owned);
      ForwardState state =
          layer.forward(problem.hidden(first, top_k.tokens), top_k,
                        {result.output.data(first * shape.hidden), top_k.tokens, shape.hidden, shape.type});
      if (rank == 0) {
        result.transfers = static_cast<std::int64_t>(state.plan().transfers().size());
        result.chunks = state.chunks().size();
        result.least_budget = layer.least_budget();
      }
      if (options.backward)
        layer.backward(
            std::move(state), problem.grad_output(first, top_k.tokens),
            {{result.grad_hidden.data(first * shape.hidden), top_k.tokens, shape.hidden, shape.type},
             std::span(result.grad_router_weights)
                 .subspan(static_cast<std::size_t>(first) * static_cast<std::size_t>(moe.top_k),
                          top_k.weights.size()),
             gradients});
    }
    result.peak_bytes[static_cast<std::size_t>(rank)] = arena.peak_bytes();
  });
  return result;
}

}  // namespace evenkeel::testing
