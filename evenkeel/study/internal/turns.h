// Ranks that share cores compute in turns, one rank a core at a time. Each stands for a rank with a device of
// its own: without turns their threads would evict each other's rows and weights from the caches, many times
// a step, and that would count as their CPU time.
#pragma once

#include <memory>

#include "evenkeel/compute/expert_ffn.h"

namespace evenkeel::internal {

// `inner`, for as many callers at once as there are cores; the others wait, which costs no CPU time.
std::shared_ptr<const ExpertFfn> in_turns(std::shared_ptr<const ExpertFfn> inner, int cores);

}  // namespace evenkeel::internal
