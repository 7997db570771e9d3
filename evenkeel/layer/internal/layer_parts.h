// The parts of a layer, from its construction on: the same on every device.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "evenkeel/layer/moe_layer.h"

namespace evenkeel::internal {

// One thing that must be equal on all ranks, as a digest.
struct Digest {
  std::string what;
  std::uint64_t value;
};

// Collective. For each digest, the first rank whose value differs from rank 0's, or -1.
std::vector<int> first_to_differ(Communicator& comm, std::span<const Digest> digests);

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
  // Collective. Throws InvalidArgument, the same on all ranks, where they build unlike layers: that names a
  // rank here, instead of hanging a step later.
  void require_agreement() const;

  Communicator& comm;
  Arena& arena;
  const MoeShape shape;
  const LayerPlacement placement;
  const MoeOptions options;

 private:
  std::vector<Digest> digests() const;
};

}  // namespace evenkeel::internal
