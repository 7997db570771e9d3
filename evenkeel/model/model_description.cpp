#include "evenkeel/model/model_description.h"

#include <algorithm>

namespace evenkeel {

std::int64_t ModelDescription::num_moe_layers() const {
  return std::count(has_experts.begin(), has_experts.begin() + num_layers, true);
}

std::int64_t ModelDescription::expert_parameters() const {
  const std::int64_t inward = (experts.gated ? 2 : 1) * experts.intermediate;
  return (inward + experts.intermediate) * expert_row_width() +
         (experts.biases ? inward + expert_row_width() : 0);
}

std::int64_t ModelDescription::parameters(WeightKind kind) const {
  std::int64_t sum = 0;
  for (const Weight& weight : weights)
    if (weight.kind == kind && weight.layer < num_layers) sum += weight.numbers();
  return sum;
}

std::int64_t ModelDescription::parameters() const {
  std::int64_t sum = 0;
  for (std::size_t kind = 0; kind < weight_kinds.size(); ++kind)
    sum += parameters(static_cast<WeightKind>(kind));
  return sum;
}

}  // namespace evenkeel
