#include "evenkeel/study/tensors.h"

#include <algorithm>
#include <cmath>
#include <system_error>
#include <thread>

#include "evenkeel/base/cores.h"

namespace evenkeel {

namespace {

constexpr std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// A random number, uniform in [-1, 1), in steps of 2^-23.
float draw(std::uint64_t key, std::int64_t at) {
  const std::uint64_t word = mix(key + static_cast<std::uint64_t>(at) * 0x9e3779b97f4a7c15u);
  return static_cast<float>(static_cast<std::int32_t>(word >> 40) - (1 << 23)) * 0x1p-23f;
}

// Calls body(begin, end) for parts of the range 0..count, on all cores.
template <class Body>
void in_parallel(std::int64_t count, const Body& body) {
  constexpr std::int64_t worth_a_thread = 1 << 20;
  const std::int64_t parts = std::clamp<std::int64_t>(count / worth_a_thread, 1, usable_cores());
  std::vector<std::jthread> others;
  std::int64_t part = 1;
  try {
    for (; part < parts; ++part) others.emplace_back(body, count * part / parts, count * (part + 1) / parts);
  } catch (const std::system_error&) {  // no more threads available, so this thread does the rest
    body(count * part / parts, count);
  }
  body(0, count / parts);
}

template <class Value>
void fill(const Tensor& tensor, const Value& value) {
  in_parallel(tensor.count(), [&](std::int64_t begin, std::int64_t end) {
    if (tensor.type() == DataType::f32)
      for (std::int64_t i = begin; i < end; ++i) reinterpret_cast<float*>(tensor.at(0))[i] = value(i);
    else
      for (std::int64_t i = begin; i < end; ++i) reinterpret_cast<bf16*>(tensor.at(0))[i] = bf16(value(i));
  });
}

// Calls make(number of elements, inputs per row) for each tensor. Biases have 0 inputs per row.
template <class Make>
ExpertModel make_experts(const ExpertShape& shape, int num_experts, const Make& make) {
  ExpertModel model{shape, num_experts, {}, {}, {}, {}};
  model.gate_up = make(num_experts * shape.gate_up_rows() * shape.hidden, shape.hidden);
  model.down = make(num_experts * shape.intermediate * shape.hidden, shape.intermediate);
  if (shape.biases) {
    model.gate_up_bias = make(num_experts * shape.gate_up_rows(), 0);
    model.down_bias = make(num_experts * shape.hidden, 0);
  }
  return model;
}

}  // namespace

Tensor::Tensor(DataType type, std::int64_t count)
    : type_(type),
      count_(count),
      data_(std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(count * bytes_of(type)))) {}

double Tensor::value(std::int64_t element) const {
  if (type_ == DataType::f32) return static_cast<double>(*reinterpret_cast<const float*>(at(element)));
  return static_cast<double>(static_cast<float>(*reinterpret_cast<const bf16*>(at(element))));
}

Tensor seeded_tensor(DataType type, std::int64_t count, std::uint64_t seed, double amplitude) {
  Tensor tensor(type, count);
  const std::uint64_t key = mix(seed + 0x9e3779b97f4a7c15u);
  const auto scale = static_cast<float>(amplitude);
  fill(tensor, [key, scale](std::int64_t i) { return scale * draw(key, i); });
  return tensor;
}

Tensor repeated_tensor(DataType type, std::int64_t count, std::span<const float> values) {
  Tensor tensor(type, count);
  fill(tensor, [values](std::int64_t i) { return values[static_cast<std::size_t>(i) % values.size()]; });
  return tensor;
}

ExpertWeights ExpertModel::weights(std::int64_t expert) const {
  const std::int64_t rows = shape.gate_up_rows();
  ExpertWeights weights;
  weights.gate_up = gate_up.at(expert * rows * shape.hidden);
  weights.down = down.at(expert * shape.intermediate * shape.hidden);
  if (shape.biases) {
    weights.gate_up_bias = gate_up_bias.at(expert * rows);
    weights.down_bias = down_bias.at(expert * shape.hidden);
  }
  return weights;
}

std::vector<ExpertWeights> ExpertModel::all() const {
  std::vector<ExpertWeights> all;
  for (std::int64_t expert = 0; expert < num_experts; ++expert) all.push_back(weights(expert));
  return all;
}

ExpertModel seeded_experts(const ExpertShape& shape, int num_experts, std::uint64_t seed) {
  // A uniform random number in (-a, a) has the variance a^2 / 3.
  const auto fan_in = [](std::int64_t inputs) { return std::sqrt(3.0 / static_cast<double>(inputs)); };
  constexpr double bias = 0.25;
  std::uint64_t tensor = 4 * seed;
  return make_experts(shape, num_experts, [&](std::int64_t count, std::int64_t inputs) {
    return seeded_tensor(shape.type, count, tensor++, inputs > 0 ? fan_in(inputs) : bias);
  });
}

ExpertModel zero_experts(const ExpertShape& shape, int num_experts) {
  return make_experts(shape, num_experts, [&](std::int64_t count, std::int64_t) {
    Tensor tensor(shape.type, count);
    std::ranges::fill(tensor.bytes(), std::byte{0});
    return tensor;
  });
}

ExpertModel trained_experts(const TrainedLayer& trained, DataType type) {
  ExpertModel model;
  model.shape = {.hidden = trained.hidden, .intermediate = trained.intermediate, .type = type};
  model.num_experts = trained.num_experts;
  model.gate_up = repeated_tensor(type, std::ssize(trained.gate_up), trained.gate_up);
  model.down = repeated_tensor(type, std::ssize(trained.down), trained.down);
  return model;
}

namespace {

// `which` is 0 for the rows that forward reads, 1 for the gradients of its output.
Tensor seeded_rows(const ExpertShape& shape, std::int64_t tokens, std::uint64_t seed, std::uint64_t which) {
  return seeded_tensor(shape.type, tokens * shape.hidden, 4 * seed + (1u << 30) + which, std::sqrt(3.0));
}

}  // namespace

LayerInputs seeded_inputs(const ExpertShape& shape, int num_experts, std::int64_t tokens, std::uint64_t seed,
                          bool backward) {
  return {seeded_experts(shape, num_experts, seed), seeded_rows(shape, tokens, seed, 0),
          seeded_rows(shape, backward ? tokens : 0, seed, 1)};
}

LayerInputs trained_inputs(const TrainedLayer& trained, DataType type, std::int64_t tokens,
                           std::uint64_t seed, bool backward) {
  ExpertModel experts = trained_experts(trained, type);
  const ExpertShape shape = experts.shape;
  return {std::move(experts),
          trained.input.empty() ? seeded_rows(shape, tokens, seed, 0)
                                : repeated_tensor(type, tokens * shape.hidden, trained.input),
          seeded_rows(shape, backward ? tokens : 0, seed, 1)};
}

}  // namespace evenkeel
