// Changes that would make a step fit that does not. Each is enough by itself, and is found by asking the
// model again.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "evenkeel/training_memory/fit.h"

namespace evenkeel {

struct Advice {
  enum class Change {
    chunks,             // a bin of this many
    full_recompute,     // value is 1
    sharded_optimizer,  // value is 1
    fully_sharded,      // value is 1
    micro_batch,
    sequence,
    tensor,
    pipeline,
    expert,
    context,
    devices,         // tensor, pipeline and expert together: this many times as many devices, rounded up
    available_bytes  // alpha M_GPU, with the largest bin
  };
  Change change = Change::available_bytes;
  std::int64_t value = 0;
  Parallelism parallel = {};  // of a change of devices: all of it

  friend bool operator==(const Advice&, const Advice&) = default;
};

// "chunks", "full_recompute", ...
std::string_view name_of(Advice::Change change);

// The least of each change that is enough, with all else as it is; a change that cannot be enough is left
// out. Degrees of parallelism are doubled (tensor up to 8), several together only where none is enough by
// itself, and not asked about where static bytes are given, since those would change. Never empty: enough
// memory always fits.
std::vector<Advice> what_would_fit(const MemoryModel& memory, ReceivedRows received,
                                   const DeviceMemory& device);

}  // namespace evenkeel
