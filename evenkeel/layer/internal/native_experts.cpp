#include "evenkeel/layer/internal/native_experts.h"

#include <fmt/format.h>

#include "evenkeel/base/error.h"

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

GradientParts parts_of(const ExpertGradients& gradients, const ExpertShape& shape) {
  const auto elements = part_elements(shape);
  float* const tensors[] = {gradients.gate_up, gradients.down, gradients.gate_up_bias, gradients.down_bias};
  GradientParts parts;
  for (std::size_t part = 0; part < kExpertParts; ++part)
    if (elements[part] > 0) parts[part] = {tensors[part], static_cast<std::size_t>(elements[part])};
  return parts;
}

namespace {
std::size_t lines(std::int64_t bytes) {
  return static_cast<std::size_t>((bytes + 63) / 64);
}
}  // namespace

NativeExperts::NativeExperts(const ExpertFfn& ffn, const LayerPlacement& placement, RankId me,
                             bool with_backward)
    : ffn_(ffn),
      experts_(placement.natives(me).begin(), placement.natives(me).end()),
      index_(static_cast<std::size_t>(placement.num_experts()), -1),
      parts_(static_cast<std::size_t>(placement.num_experts())),
      with_backward_(with_backward) {
  for (std::size_t i = 0; i < experts_.size(); ++i) index_[experts_[i].offset()] = static_cast<int>(i);
}

void NativeExperts::require(const ExpertWeights& weights, ExpertId expert) const {
  const bool biases = ffn_.shape().biases;
  const bool whole = weights.gate_up != nullptr && weights.down != nullptr &&
                     (!biases || (weights.gate_up_bias != nullptr && weights.down_bias != nullptr));
  if (!whole)
    throw InvalidArgument(fmt::format("weights of expert {}", expert.value()), "a tensor is missing",
                          biases ? "gate_up, down and both biases" : "gate_up and down");
}

void NativeExperts::set(std::span<const ExpertWeights> weights) {
  if (weights.size() != experts_.size())
    throw InvalidArgument("weights", fmt::format("{} experts", weights.size()),
                          fmt::format("the {} at home on this rank", experts_.size()));
  for (std::size_t i = 0; i < experts_.size(); ++i) require(weights[i], experts_[i]);

  const auto elements = part_elements(ffn_.shape());
  const auto unit = static_cast<std::size_t>(bytes_of(ffn_.shape().type));
  const std::size_t forward = lines(ffn_.prepared_bytes(Pass::forward));
  const std::size_t backward = with_backward_ ? lines(ffn_.prepared_bytes(Pass::backward)) : 0;
  forward_.resize(forward * experts_.size());
  backward_.resize(backward * experts_.size());
  for (std::size_t i = 0; i < experts_.size(); ++i) {
    const void* const tensors[] = {weights[i].gate_up, weights[i].down, weights[i].gate_up_bias,
                                   weights[i].down_bias};
    ExpertParts& parts = parts_[experts_[i].offset()];
    for (std::size_t part = 0; part < kExpertParts; ++part)
      if (elements[part] > 0)
        parts[part] = {static_cast<const std::byte*>(tensors[part]),
                       static_cast<std::size_t>(elements[part]) * unit};
    ffn_.prepare(weights[i], Pass::forward, {forward_[i * forward].bytes, forward * sizeof(Line)});
    if (with_backward_)
      ffn_.prepare(weights[i], Pass::backward, {backward_[i * backward].bytes, backward * sizeof(Line)});
  }
  set_ = true;
}

const std::byte* NativeExperts::prepared(ExpertId expert, Pass pass) const {
  const bool backward = pass == Pass::backward;
  const std::size_t each = lines(ffn_.prepared_bytes(backward ? pass : Pass::forward));
  return (backward ? backward_ : forward_)[index(expert) * each].bytes;
}

}  // namespace evenkeel::internal
