// Small random placement problems of every kind, for the exact solvers.
#pragma once

#include <random>
#include <string>

#include "tests/placement/oracle.h"

namespace evenkeel {

struct MostOf {
  int experts = 6;
  int ranks = 3;
  int layers = 3;
};

// Capacities, speeds and unlike links among them; some have no answer.
SmallProblem random_case(std::mt19937_64& random, const MostOf& most = {});
std::string text_of(const SmallProblem& small);

}  // namespace evenkeel
