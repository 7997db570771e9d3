// Argument checks that every backend makes.
#pragma once

#include <fmt/format.h>

#include "evenkeel/base/error.h"
#include "evenkeel/comm/communicator.h"

namespace evenkeel::internal {

inline void require_gather_sizes(std::size_t mine, std::size_t all, int ranks, const char* name) {
  if (all != static_cast<std::size_t>(ranks) * mine)
    throw InvalidArgument("all", fmt::format("has {} bytes in {}", all, name),
                          fmt::format("{} ranks times {} bytes", ranks, mine));
}

void require_peers(const char* argument, const auto& slices, int ranks) {
  for (const auto& slice : slices)
    if (slice.peer.value() < 0 || slice.peer.value() >= ranks)
      throw InvalidArgument(argument, fmt::format("rank {} does not exist", slice.peer.value()),
                            fmt::format("0..{}", ranks - 1));
}

}  // namespace evenkeel::internal
