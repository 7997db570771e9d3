// A routed step for up to seven ranks, with a plan that is random or made by any planner.
#pragma once

#include <random>

#include "evenkeel/balance/planner.h"
#include "tests/plan/deal_oracle.h"

namespace evenkeel::testing {

struct Step {
  Choices choices;
  LayerPlacement placement = LayerPlacement::contiguous(1, 1);
  StepPlan plan;
};

inline Step random_step(unsigned seed) {
  std::mt19937 random(seed);
  Step step;
  const int ranks = static_cast<int>(random() % 7) + 1;
  step.choices = random_choices(random, ranks);
  step.placement = random_placement(random, step.choices.num_experts, ranks, seed % 2 == 0);
  if (seed % 4 == 3)
    fill_random_plan(random, step.choices.counts(), step.placement, step.plan);
  else
    make_planner({static_cast<PlannerOptions::Kind>(seed % 4), 1000, 3, 0})
        ->plan(step.choices.counts(), step.placement, step.plan);
  return step;
}

}  // namespace evenkeel::testing
