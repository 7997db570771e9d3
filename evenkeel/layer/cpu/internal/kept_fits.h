// Whether the arena has the bytes that the backward pass of kept chunks asks for. budget/chunk_bytes.h says
// what is held when.
#pragma once

#include <cstdint>
#include <span>

#include "evenkeel/layer/cpu/internal/cpu_layer.h"
#include "evenkeel/layer/cpu/internal/saved_step.h"
#include "evenkeel/plan/step_plan.h"

namespace evenkeel::internal {

// Beside what other steps hold now.
bool kept_fits(const CpuLayer& layer, const SavedStep& step);

// Bytes that borrowing for these passes of backward takes.
std::int64_t borrowing_bytes(const CpuLayer& layer, const StepPlan& plan, std::span<const Pass> passes);

// The passes that weights are borrowed for where something is computed again.
std::span<const Pass> again_passes(const CpuLayer& layer);

}  // namespace evenkeel::internal
