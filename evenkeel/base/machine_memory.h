// How much memory this process may use: the machine's memory, unless control groups (evenkeel/base/cgroup.h),
// `ulimit -v` or `ulimit -d` allow less.
#pragma once

#include <cstdint>
#include <string>

namespace evenkeel {

// The most bytes that this process could ever hold. Changes only when the limits do.
std::int64_t usable_memory_bytes();

// Memory that this process could get now, and where that number comes from.
struct FreeMemory {
  std::int64_t bytes = 0;
  // Begins a sentence: "the machine's free memory is", "the container's limit leaves", "`ulimit -v` leaves".
  std::string because;
};
FreeMemory free_memory();

// Bytes of address space that `ulimit -v` leaves beyond those in use; the largest number without such a
// limit.
std::int64_t free_address_bytes();

}  // namespace evenkeel
