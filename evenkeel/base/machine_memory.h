// How much memory this process may have, which is what the machine has only where nothing says less: control
// groups (evenkeel/base/cgroup.h) and `ulimit -v` and `-d` do.
#pragma once

#include <cstdint>
#include <string>

namespace evenkeel {

// The most that it could ever hold; the same as long as limits are.
std::int64_t usable_memory_bytes();

// Memory that this process could get now, and where that number comes from.
struct FreeMemory {
  std::int64_t bytes = 0;
  std::string because;  // "the machine has free", "the container may still take", "`ulimit -v` leaves"
};
FreeMemory free_memory();

// Of addresses, beyond those in use: what `ulimit -v` leaves; the largest number without such a limit.
std::int64_t free_address_bytes();

}  // namespace evenkeel
