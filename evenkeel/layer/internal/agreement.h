// Do all ranks build the same layer? Asked once, at construction, so that a difference names a rank there
// instead of hanging a step later.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "evenkeel/comm/communicator.h"

namespace evenkeel::internal {

// One thing that must be equal on all ranks, as a digest.
struct Digest {
  std::string what;
  std::uint64_t value;
};

// Collective. For each digest, the first rank whose value differs from rank 0's, or -1.
std::vector<int> first_to_differ(Communicator& comm, std::span<const Digest> digests);

// Collective. Throws InvalidArgument, the same on all ranks, if any digest differs.
void require_agreement(Communicator& comm, std::span<const Digest> digests);

}  // namespace evenkeel::internal
