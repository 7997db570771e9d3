// An expert's tensors are all there.
#pragma once

#include <fmt/format.h>

#include <string_view>

#include "evenkeel/base/error.h"
#include "evenkeel/base/index.h"

namespace evenkeel::internal {

// Throws InvalidArgument where one is null. `what`: "weights" or "gradients".
template <class Tensors>
void require_whole(const Tensors& tensors, std::string_view what, ExpertId expert, bool biases) {
  const bool whole = tensors.gate_up != nullptr && tensors.down != nullptr &&
                     (!biases || (tensors.gate_up_bias != nullptr && tensors.down_bias != nullptr));
  if (!whole)
    throw InvalidArgument(fmt::format("{} of expert {}", what, expert.value()), "a tensor is missing",
                          biases ? "gate_up, down and both biases" : "gate_up and down");
}

}  // namespace evenkeel::internal
