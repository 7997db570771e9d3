// Checks the input of a planner for a step, and computes the share of an expert's assignments that each copy
// gets.
#pragma once

#include <cstdint>
#include <span>

#include "evenkeel/plan/counts.h"
#include "evenkeel/plan/placement.h"

namespace evenkeel::internal {

// Throws InvalidArgument unless counts and placement agree in experts and ranks, and base_load is empty or
// names a load of 0 or more for every rank, all loads together at most 2^63-1.
void require_step_input(const Counts& counts, const LayerPlacement& placement,
                        std::span<const std::int64_t> base_load);

// The share of one copy: assignments are divided evenly; if a remainder is left, the first copies take one
// more.
constexpr std::int64_t copy_share(std::int64_t load, std::size_t copies, std::size_t copy) {
  const auto n = static_cast<std::int64_t>(copies);
  if (n == 1) return load;
  return load / n + (static_cast<std::int64_t>(copy) < load % n ? 1 : 0);
}

}  // namespace evenkeel::internal
