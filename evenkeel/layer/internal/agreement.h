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

// FNV-1a over the bytes of trivially copyable values.
class Hash {
 public:
  template <class T>
  Hash& add(const T& value) {
    for (std::byte byte : std::as_bytes(std::span(&value, 1)))
      state_ = (state_ ^ static_cast<std::uint64_t>(byte)) * 1099511628211ull;
    return *this;
  }
  std::uint64_t value() const { return state_; }

 private:
  std::uint64_t state_ = 14695981039346656037ull;
};

// Collective. For each digest, the first rank whose value differs from rank 0's, or -1.
std::vector<int> first_to_differ(Communicator& comm, std::span<const Digest> digests);

// Collective. Throws InvalidArgument, the same on all ranks, if any digest differs.
void require_agreement(Communicator& comm, std::span<const Digest> digests);

}  // namespace evenkeel::internal
