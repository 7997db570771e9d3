#include "evenkeel/compute/expert_ffn.h"

#include <fmt/format.h>

#include "evenkeel/base/error.h"

namespace evenkeel {

namespace {
constexpr Activation kActivations[] = {Activation::swiglu, Activation::clamped_swiglu, Activation::gelu};
}

std::string_view name_of(Activation activation) {
  switch (activation) {
    case Activation::swiglu:
      return "swiglu";
    case Activation::clamped_swiglu:
      return "clamped-swiglu";
    case Activation::gelu:
      return "gelu";
  }
  return "";
}

Activation parse_activation(std::string_view name) {
  for (Activation activation : kActivations)
    if (name == name_of(activation)) return activation;
  throw InvalidArgument("activation", "\"" + std::string(name) + "\" is unknown",
                        "swiglu, clamped-swiglu, gelu");
}

void require_sizes(const ExpertShape& shape) {
  constexpr std::int64_t kMost = 1 << 20;
  if (shape.hidden < 1 || shape.hidden > kMost)
    throw InvalidArgument("hidden", fmt::format("{}", shape.hidden), fmt::format("1..{}", kMost));
  if (shape.intermediate < 1 || shape.intermediate > kMost)
    throw InvalidArgument("intermediate", fmt::format("{}", shape.intermediate), fmt::format("1..{}", kMost));
}

}  // namespace evenkeel
