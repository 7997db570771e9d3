// Ranks that share cores compute in turns, one rank per core at a time. Each rank simulates one that has a
// device to itself. Without turns, the ranks' threads would evict each other's rows and weights from the
// caches many times in a step, which would add to their CPU time.
#pragma once

#include <memory>

#include "evenkeel/compute/expert_ffn.h"

namespace evenkeel::internal {

// Wraps `inner` so that at most `cores` callers run at the same time. The others wait, which takes no CPU
// time.
std::shared_ptr<const ExpertFfn> in_turns(std::shared_ptr<const ExpertFfn> inner, int cores);

}  // namespace evenkeel::internal
