#include "evenkeel/compute/expert_ffn.h"

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
  throw InvalidArgument("activation", "\"" + std::string(name) + "\" is none",
                        "swiglu, clamped-swiglu, gelu");
}

}  // namespace evenkeel
