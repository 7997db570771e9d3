#include "evenkeel/layer/internal/expert_parts.h"

namespace evenkeel::internal {

std::array<std::int64_t, kExpertParts> part_elements(const ExpertShape& shape) {
  return {shape.gate_up_rows() * shape.hidden, shape.intermediate * shape.hidden,
          shape.biases ? shape.gate_up_rows() : 0, shape.biases ? shape.hidden : 0};
}

ExpertWeights weights_of(const ExpertParts& parts) {
  return {parts[0].data(), parts[1].data(), parts[2].data(), parts[3].data()};
}

ExpertGradients gradients_of(const GradientParts& parts) {
  return {parts[0].data(), parts[1].data(), parts[2].data(), parts[3].data()};
}

ExpertParts parts_of(const ExpertWeights& weights, const ExpertShape& shape) {
  const auto elements = part_elements(shape);
  const void* const tensors[] = {weights.gate_up, weights.down, weights.gate_up_bias, weights.down_bias};
  ExpertParts parts;
  for (std::size_t part = 0; part < kExpertParts; ++part)
    if (elements[part] > 0)
      parts[part] = {static_cast<const std::byte*>(tensors[part]),
                     static_cast<std::size_t>(elements[part] * bytes_of(shape.type))};
  return parts;
}

GradientParts parts_of(const ExpertGradients& gradients, const ExpertShape& shape) {
  const auto elements = part_elements(shape);
  float* const tensors[] = {gradients.gate_up, gradients.down, gradients.gate_up_bias, gradients.down_bias};
  GradientParts parts;
  for (std::size_t part = 0; part < kExpertParts; ++part)
    if (elements[part] > 0) parts[part] = {tensors[part], static_cast<std::size_t>(elements[part])};
  return parts;
}

}  // namespace evenkeel::internal
