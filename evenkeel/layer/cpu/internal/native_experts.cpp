#include "evenkeel/layer/cpu/internal/native_experts.h"

#include "evenkeel/base/bytes.h"

namespace evenkeel::internal {

NativeExperts::NativeExperts(const ExpertFfn& ffn, const LayerPlacement& placement, RankId me,
                             bool with_backward)
    : ffn_(ffn),
      experts_(placement.natives(me).begin(), placement.natives(me).end()),
      index_(static_cast<std::size_t>(placement.num_experts()), -1),
      parts_(static_cast<std::size_t>(placement.num_experts())),
      with_backward_(with_backward) {
  for (std::size_t i = 0; i < experts_.size(); ++i) index_[experts_[i].offset()] = static_cast<int>(i);
  const auto reserve = [&](Pass pass) {
    return Device::cpu().memory().reserve(bytes_each(pass) * std::ssize(experts_), MemorySource::Commit::now);
  };
  forward_ = reserve(Pass::forward);
  if (with_backward) backward_ = reserve(Pass::backward);
}

std::int64_t NativeExperts::bytes_each(Pass pass) const {
  return whole_lines(ffn_.prepared_bytes(pass));
}

std::span<std::byte> NativeExperts::form(std::size_t index, Pass pass) const {
  const std::int64_t bytes = bytes_each(pass);
  const MemoryRange& range = *(pass == Pass::backward ? backward_ : forward_);
  return {range.begin() + static_cast<std::int64_t>(index) * bytes, static_cast<std::size_t>(bytes)};
}

void NativeExperts::set(std::span<const ExpertWeights> weights) {
  const auto elements = part_elements(ffn_.shape());
  const auto unit = static_cast<std::size_t>(bytes_of(ffn_.shape().type));
  for (std::size_t i = 0; i < experts_.size(); ++i) {
    const void* const tensors[] = {weights[i].gate_up, weights[i].down, weights[i].gate_up_bias,
                                   weights[i].down_bias};
    ExpertParts& parts = parts_[experts_[i].offset()];
    for (std::size_t part = 0; part < kExpertParts; ++part)
      if (elements[part] > 0)
        parts[part] = {static_cast<const std::byte*>(tensors[part]),
                       static_cast<std::size_t>(elements[part]) * unit};
    ffn_.prepare(weights[i], Pass::forward, form(i, Pass::forward));
    if (with_backward_) ffn_.prepare(weights[i], Pass::backward, form(i, Pass::backward));
  }
}

const std::byte* NativeExperts::prepared(ExpertId expert, Pass pass) const {
  return form(index(expert), pass == Pass::backward ? pass : Pass::forward).data();
}

}  // namespace evenkeel::internal
