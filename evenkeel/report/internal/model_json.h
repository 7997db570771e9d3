// The model as JSON, for the memory reports.
#pragma once

#include "evenkeel/model/model_description.h"
#include "evenkeel/report/internal/json.h"

namespace evenkeel::internal {

inline Json json_of(const ModelDescription& model) {
  Json by_kind = Json::object(), unsorted = Json::array();
  for (std::size_t kind = 0; kind < weight_kinds.size(); ++kind)
    if (const std::int64_t numbers = model.parameters(static_cast<WeightKind>(kind)); numbers > 0)
      by_kind[std::string(weight_kinds[kind])] = numbers;
  for (const Weight& weight : model.weights)
    if (weight.kind == WeightKind::other) unsorted.push_back(weight.name);
  return {{"family", model.family},
          {"parameters", model.parameters()},
          {"expert_parameters", model.parameters(WeightKind::experts)},
          {"parameters_by_kind", std::move(by_kind)},
          {"unsorted", std::move(unsorted)},
          {"layers", model.num_layers},
          {"moe_layers", model.num_moe_layers()},
          {"prediction_layers", model.prediction_layers.size()},
          {"experts", model.experts.count},
          {"top_k", model.experts.top_k}};
}

}  // namespace evenkeel::internal
