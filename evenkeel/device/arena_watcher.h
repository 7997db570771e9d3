// Who wants to know what an arena lends and takes back, as it happens.
#pragma once

#include <cstdint>

#include "evenkeel/device/arena.h"

namespace evenkeel {

// Bytes of an arena while they are lent.
struct Loan {
  const char* name = nullptr;  // as allocate() was given it
  std::int64_t begin = 0;      // from the arena's first byte
  std::int64_t bytes = 0;      // rounded, as they are counted
  Lifetime lifetime = Lifetime::step;
};

// Called on the arena's thread, when the arena has counted the bytes; `in_use` is the new sum. May not use
// the arena.
class ArenaWatcher {
 public:
  virtual void lent(const Loan& loan, std::int64_t in_use) noexcept = 0;
  // The loan that begins there has ended.
  virtual void given_back(std::int64_t begin, std::int64_t in_use) noexcept = 0;

 protected:
  ~ArenaWatcher() = default;
};

}  // namespace evenkeel
