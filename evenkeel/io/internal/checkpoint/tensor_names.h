// The role of a tensor by its name, as a family names its tensors.
#pragma once

#include <string_view>

#include "evenkeel/model/family.h"

namespace evenkeel::internal {

struct TensorRole {
  enum class Kind {
    other,        // not of a layer's experts
    module_part,  // of the module that holds experts; right in a layer that has none
    of_expert,    // one expert's
    stacked,      // of all experts, a row for each
    router,       // the same
    id_table,     // whose numbers are ids of experts
    kept,         // beside experts, but of none
    unknown       // looks like an expert's or a router's, and is none of these
  };
  Kind kind = Kind::other;
  std::string_view prefix;  // before the number of the layer: "model.layers"
  int layer = -1;           // -1: the name has none
  bool prediction = false;  // a layer of multi-token prediction, numbered by itself
  int expert = 0;
  std::string_view part;  // after the module, or after the expert
};

// All views are of `name`.
TensorRole role_of(std::string_view name, const ExpertTensors& family);

// Whether a router tensor is the one that chooses experts, not a bias.
bool chooses_experts(const TensorRole& role);
// Whether a stacked tensor may be one number for all experts, as scales of activations are.
bool may_be_common(const TensorRole& role);

}  // namespace evenkeel::internal
