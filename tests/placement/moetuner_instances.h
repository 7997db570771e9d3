// The instances of tests/data/moetuner.json, as problems and their proven optima.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "evenkeel/placement/ranks/ranks.h"

namespace evenkeel {

struct MoetunerInstance {
  std::string name;
  RoutingProfile profile;
  int num_ranks = 0;
  double equal_optimum = 0;  // program 1 with E/G experts per cluster
  double free_optimum = 0;   // program 1 with at least one expert per cluster
  std::vector<double> equal_by_layer;
  std::vector<double> free_by_layer;
  Clustering clusters;   // optimal clusters of equal size, the input of program 2
  nlohmann::json ranks;  // ["uniform" | "two_level"]["max" | "sum"]["optimum"]

  Topology topology(const std::string& links) const;
  double rank_optimum(const std::string& links, PairObjective pairs) const;
};

const std::vector<MoetunerInstance>& moetuner_instances();

}  // namespace evenkeel
