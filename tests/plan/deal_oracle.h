// The deal of a step the plain way: every assignment in a list, and the rule of plan/deal.h applied to
// the list.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "evenkeel/plan/counts.h"
#include "evenkeel/plan/placement.h"
#include "evenkeel/plan/step_plan.h"

namespace evenkeel::testing {

struct Choices {
  int num_experts = 0;
  int k = 0;
  std::vector<std::vector<std::int32_t>> ids;  // by rank, [tokens * k]

  int num_ranks() const { return static_cast<int>(ids.size()); }
  Counts counts() const;
};

// Even, hot or sparse; ids of -1 and repeated ones, ranks without tokens.
Choices random_choices(std::mt19937& random, int ranks);
// One home an expert, anywhere, or several.
LayerPlacement random_placement(std::mt19937& random, int experts, int ranks, bool copies);
// Segments in no planner's order, several of one rank.
void fill_random_plan(std::mt19937& random, const Counts& counts, const LayerPlacement& placement,
                      StepPlan& plan);

// The rank that computes each assignment, by source rank; -1 for none.
std::vector<std::vector<int>> destinations(const Choices& choices, const StepPlan& plan);

}  // namespace evenkeel::testing
