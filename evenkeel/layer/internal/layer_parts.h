// The parts of a layer, from its construction on: the same on every device.
#pragma once

#include <memory>
#include <span>
#include <variant>
#include <vector>

#include "evenkeel/layer/internal/agreement.h"
#include "evenkeel/layer/moe_layer.h"

namespace evenkeel::internal {

struct LayerParts {
  // Throws InvalidArgument where these make no layer.
  LayerParts(Communicator& communicator, Arena& memory, const MoeShape& moe, LayerPlacement homes,
             MoeOptions given);

  // The experts at home on this rank, ascending.
  std::span<const ExpertId> natives() const { return placement.natives(comm.rank()); }
  // Whether this rank has the expert's gradient.
  bool owns(ExpertId expert) const { return placement.owner(expert) == comm.rank(); }
  // Null for a layer on the CPU.
  const LayerDevice* other_device() const {
    const auto* const other = std::get_if<std::shared_ptr<const LayerDevice>>(&options.device);
    return other == nullptr ? nullptr : other->get();
  }
  // Digests of all that ranks must build a layer from alike.
  std::vector<Digest> digests() const;

  Communicator& comm;
  Arena& arena;
  const MoeShape shape;
  const LayerPlacement placement;
  const MoeOptions options;
};

}  // namespace evenkeel::internal
