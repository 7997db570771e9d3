// Ranks that share cores compute in turns, one rank per core at a time. Each simulates a rank with its own
// device. Without turns their threads would evict each other's rows and weights from the caches many times a
// step, and that would count as their CPU time.
#pragma once

#include <memory>

#include "evenkeel/compute/expert_ffn.h"

namespace evenkeel::internal {

// Wraps `inner` so that at most `cores` callers run at once. The others wait, which costs no CPU time.
std::shared_ptr<const ExpertFfn> in_turns(std::shared_ptr<const ExpertFfn> inner, int cores);

}  // namespace evenkeel::internal
