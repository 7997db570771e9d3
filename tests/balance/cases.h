// Seeded random and adversarial inputs for planners.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "evenkeel/plan/counts.h"
#include "evenkeel/plan/placement.h"

namespace evenkeel {

struct Case {
  std::vector<std::int64_t> loads;
  std::vector<std::vector<int>> homes;
  int num_ranks = 1;
  std::vector<std::int64_t> base_load;

  Counts counts() const { return Counts::of_loads(loads, num_ranks); }
  LayerPlacement placement() const { return LayerPlacement(homes, num_ranks); }
  std::string text() const;  // for failure messages
};

struct CaseLimits {
  int max_ranks = 12;
  int max_experts = 40;
  bool copies = false;
  bool base_load = false;
};

std::int64_t draw(std::mt19937_64& random, std::int64_t least, std::int64_t most);

// Loads are even, equal, skewed, concentrated, sparse or huge. Homes are contiguous or scattered; ranks own
// different numbers of experts, some of them none.
Case random_case(std::mt19937_64& random, const CaseLimits& limits);

// A case small enough to try every plan: at most 4 ranks, 6 experts, 30 assignments.
Case tiny_case(std::mt19937_64& random, bool copies);

// Counts with sources: each load is dealt over random source ranks in random parts, so that each rank's
// tokens prefer some experts.
Counts with_random_sources(std::mt19937_64& random, const Case& c);

// `share` of the assignments goes to `hot` experts; the rest is drawn evenly over the others. With `spread`
// the hot experts are random ones, else the first.
std::vector<std::int64_t> concentrated(std::mt19937_64& random, int experts, std::int64_t assignments,
                                       double share, int hot, bool spread);

}  // namespace evenkeel
