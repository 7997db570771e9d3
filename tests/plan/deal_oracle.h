// The deal of a step, computed naively: lists every assignment and applies the rule of plan/deal.h to the
// list.
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

// Random choices, even or with a hot expert. Some ids are -1 or repeated, and some ranks have no tokens.
Choices random_choices(std::mt19937& random, int ranks);
// One random home per expert; with `copies`, one or more.
LayerPlacement random_placement(std::mt19937& random, int experts, int ranks, bool copies);
// A random plan whose segments are in no particular order; one rank may have several of an expert.
void fill_random_plan(std::mt19937& random, const Counts& counts, const LayerPlacement& placement,
                      StepPlan& plan);

// By source rank, the rank that computes each assignment; -1 if none does.
std::vector<std::vector<int>> destinations(const Choices& choices, const StepPlan& plan);

}  // namespace evenkeel::testing
