// Changes that would make a step fit if it does not. Each change is enough alone, and is found by evaluating
// the memory model again.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "evenkeel/training_memory/fit.h"

namespace evenkeel {

struct Advice {
  enum class Change {
    chunks,             // adds a bin of this chunk count
    full_recompute,     // value is 1
    sharded_optimizer,  // value is 1
    fully_sharded,      // value is 1
    micro_batch,
    sequence,
    tensor,
    pipeline,
    expert,
    context,
    devices,         // tensor, pipeline and expert together: value times as many devices, rounded up
    available_bytes  // alpha M_GPU, with the largest bin
  };
  Change change = Change::available_bytes;
  std::int64_t value = 0;
  Parallelism parallel = {};  // the new layout, if the change is one of devices

  friend bool operator==(const Advice&, const Advice&) = default;
};

// "chunks", "full_recompute", ...
std::string_view name_of(Advice::Change change);

// For each kind of change, the smallest change that is enough if everything else stays the same. A kind of
// change that cannot be enough is left out. Degrees of parallelism are doubled (tensor up to 8). Several
// degrees are changed together only if no single degree is enough. No degrees are changed if static bytes are
// given, since those would change too. The result is never empty, because more memory is always enough.
std::vector<Advice> what_would_fit(const MemoryModel& memory, ReceivedRows received,
                                   const DeviceMemory& device);

}  // namespace evenkeel
