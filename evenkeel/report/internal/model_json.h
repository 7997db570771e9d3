// What the reports of a device's memory say of the model.
#pragma once

#include "evenkeel/model/parameters.h"
#include "evenkeel/report/internal/json.h"

namespace evenkeel::internal {

inline Json json_of(const ModelDescription& model) {
  const ModelParameters parameters = model_parameters(model);
  return {{"family", model.family},
          {"parameters", parameters.total()},
          {"expert_parameters", parameters.layers.experts},
          {"layers", model.num_layers},
          {"moe_layers", model.num_moe_layers()},
          {"prediction_layers", model.prediction_layers.size()},
          {"experts", model.experts.count},
          {"top_k", model.experts.top_k}};
}

}  // namespace evenkeel::internal
