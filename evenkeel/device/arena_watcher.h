// A callback for every buffer that an arena lends or takes back.
#pragma once

#include <cstdint>

#include "evenkeel/device/arena.h"

namespace evenkeel {

// A buffer that an arena has lent.
struct Loan {
  const char* name = nullptr;  // the name passed to allocate()
  std::int64_t begin = 0;      // offset from the arena's first byte
  std::int64_t bytes = 0;      // rounded up, as in_use_bytes() counts them
  Lifetime lifetime = Lifetime::step;
};

// Called on the arena's thread after the arena has updated its counts; `in_use` is the new total. Must not
// use the arena.
class ArenaWatcher {
 public:
  virtual void lent(const Loan& loan, std::int64_t in_use) noexcept = 0;
  // The loan that begins at `begin` has ended.
  virtual void given_back(std::int64_t begin, std::int64_t in_use) noexcept = 0;

 protected:
  ~ArenaWatcher() = default;
};

}  // namespace evenkeel
