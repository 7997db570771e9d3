// The choice of experts for a token, in each synthetic workload.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "evenkeel/routing/workload.h"

namespace evenkeel::internal {

// Writes the expert ids of one token, whose index counts all tokens of the step.
using Chooser = std::function<void(std::int64_t token, std::span<std::int32_t> ids)>;

// The caller must have checked the shape. Throws InvalidArgument if the workload does not fit the number of
// experts.
Chooser make_chooser(const Workload& workload, const WorkloadShape& shape, std::uint64_t seed,
                     std::uint64_t step);

}  // namespace evenkeel::internal
