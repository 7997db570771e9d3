// Inputs and weights for layers to compute with. They are generated from a seed, and are the same on every
// machine and for any number of ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "evenkeel/base/matrix_view.h"
#include "evenkeel/compute/expert_ffn.h"
#include "evenkeel/io/trained_layer.h"

namespace evenkeel {

// An array of numbers whose type is known only at run time.
class Tensor {
 public:
  Tensor() = default;
  // The elements are not initialised.
  Tensor(DataType type, std::int64_t count);

  DataType type() const { return type_; }
  std::int64_t count() const { return count_; }
  std::span<std::byte> bytes() const {
    return {data_.get(), static_cast<std::size_t>(count_ * bytes_of(type_))};
  }
  std::byte* at(std::int64_t element) const { return data_.get() + element * bytes_of(type_); }
  double value(std::int64_t element) const;

 private:
  DataType type_ = DataType::f32;
  std::int64_t count_ = 0;
  std::unique_ptr<std::byte[]> data_;
};

// Random numbers, uniform in (-amplitude, amplitude). Element i depends only on `seed` and i.
Tensor seeded_tensor(DataType type, std::int64_t count, std::uint64_t seed, double amplitude);
// Repeats `values` until there are `count` numbers, rounded to the type.
Tensor repeated_tensor(DataType type, std::int64_t count, std::span<const float> values);

// The weights of all experts of a layer, shared by the ranks.
struct ExpertModel {
  ExpertShape shape;
  int num_experts = 0;
  Tensor gate_up, down, gate_up_bias, down_bias;

  ExpertWeights weights(std::int64_t expert) const;
  std::vector<ExpertWeights> all() const;
};

ExpertModel zero_experts(const ExpertShape& shape, int num_experts);
// Scaled so that inputs of variance 1 give outputs of variance about 1.
ExpertModel seeded_experts(const ExpertShape& shape, int num_experts, std::uint64_t seed);

// The experts of a file, with weights rounded to the type.
ExpertModel trained_experts(const TrainedLayer& trained, DataType type);

// The tensors that a layer's steps read, joined over all ranks.
struct LayerInputs {
  ExpertModel experts;
  Tensor hidden;       // [tokens, D]
  Tensor grad_output;  // [tokens, D]; only with backward
};

// Seeded inputs whose rows have variance 1.
LayerInputs seeded_inputs(const ExpertShape& shape, int num_experts, std::int64_t tokens, std::uint64_t seed,
                          bool backward);
// The experts of the file, and its rows, repeated, if it has any. Everything else is seeded.
LayerInputs trained_inputs(const TrainedLayer& trained, DataType type, std::int64_t tokens,
                           std::uint64_t seed, bool backward);

}  // namespace evenkeel
