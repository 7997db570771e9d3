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

// Loads even, equal, skewed, concentrated, sparse or huge; homes contiguous or scattered, in unequal numbers,
// some ranks without any.
Case random_case(std::mt19937_64& random, const CaseLimits& limits);

// Small enough to try every plan: at most 4 ranks, 6 experts, 30 assignments.
Case tiny_case(std::mt19937_64& random, bool copies);

// Counts with sources: every load dealt at random over the source ranks, one rank's tokens liking some
// experts.
Counts with_random_sources(std::mt19937_64& random, const Case& c);

// "Share of the assignments into some experts", the rest drawn evenly over the others.
std::vector<std::int64_t> concentrated(std::mt19937_64& random, int experts, std::int64_t assignments,
                                       double share, int hot, bool spread);

}  // namespace evenkeel
