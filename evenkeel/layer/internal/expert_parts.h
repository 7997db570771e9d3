// Converts an expert's tensors between the caller's names and the parts that WeightTransfer sends.
#pragma once

#include <array>
#include <cstdint>

#include "evenkeel/compute/expert_ffn.h"
#include "evenkeel/exchange/weight_transfer.h"

namespace evenkeel::internal {

// Elements of each of an expert's tensors: gate_up, down, gate_up_bias, down_bias.
std::array<std::int64_t, kExpertParts> part_elements(const ExpertShape& shape);
ExpertWeights weights_of(const ExpertParts& parts);
ExpertGradients gradients_of(const GradientParts& parts);
ExpertParts parts_of(const ExpertWeights& weights, const ExpertShape& shape);
GradientParts parts_of(const ExpertGradients& gradients, const ExpertShape& shape);

}  // namespace evenkeel::internal
