// Compared with EPLB's published code, layer by layer, on its own example and on real and synthetic loads
// (tests/data/README.md).
#include <gmock/gmock.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "evenkeel/io/array_file.h"
#include "evenkeel/placement/replicas/eplb.h"

namespace evenkeel {
namespace {

using Json = nlohmann::json;

struct Golden {
  std::string name;
  std::vector<double> weight;
  EplbProblem problem;
  std::vector<double> balance;  // max/mean of the published code, by layer
};

Golden golden(const Json& c, const ArrayFile& weights) {
  Golden g{.name = c.at("name"), .weight = {}, .problem = {}, .balance = c.at("balance").at("per_layer")};
  if (c.contains("weight")) {
    for (const auto& row : c.at("weight"))
      for (const auto& load : row) g.weight.push_back(load.get<double>());
  } else {
    const auto loads = read_integers(weights, c.at("weight_npz_key").get<std::string>()).values;
    g.weight.assign(loads.begin(), loads.end());
  }
  g.problem = {.num_layers = c.at("num_layers"),
               .num_experts = c.at("num_experts"),
               .weight = {},
               .num_replicas = c.at("num_slots"),
               .num_groups = c.at("num_groups"),
               .num_nodes = c.at("num_nodes"),
               .num_gpus = c.at("num_gpus")};
  return g;
}

const std::vector<Golden>& all_golden() {
  static const std::vector<Golden> cases = [] {
    const std::string folder = EVENKEEL_SOURCE_DIR "/tests/data/";
    const Json file = Json::parse(std::ifstream(folder + "eplb.json"));
    const auto weights = open_array_file(folder + "eplb.npz");
    std::vector<Golden> read;
    for (const Json& c : file.at("cases")) read.push_back(golden(c, *weights));
    for (Golden& g : read) g.problem.weight = g.weight;
    return read;
  }();
  return cases;
}

class ReplicasGolden : public testing::TestWithParam<std::size_t> {
 protected:
  const Golden& golden_case() const { return all_golden().at(GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(, ReplicasGolden, testing::Range<std::size_t>(0, 5),
                         [](const auto& index) { return all_golden().at(index.param).name; });

TEST(ReplicasGoldenFile, HasFiveCases) {
  EXPECT_EQ(all_golden().size(), 5U);
}

TEST_P(ReplicasGolden, NoLayerIsLessBalancedThanThePublishedOne) {
  const EplbMaps maps = rebalance_experts(golden_case().problem);
  ASSERT_EQ(maps.max_over_mean.size(), golden_case().balance.size());
  for (std::size_t l = 0; l < maps.max_over_mean.size(); ++l)  // published values have six decimals
    EXPECT_LE(maps.max_over_mean[l], golden_case().balance[l] + 6e-7) << "layer " << l;
}

TEST_P(ReplicasGolden, TheCertifiedGapIsWithinAFifthOfAPercentFlatAndHalfAPercentGrouped) {
  const EplbProblem& problem = golden_case().problem;
  const EplbMaps maps = rebalance_experts(problem);
  double gap = 0;
  for (std::size_t l = 0; l < maps.bound.size(); ++l) gap += maps.max_over_mean[l] / maps.bound[l] - 1;
  const bool grouped = problem.is_hierarchical() && problem.num_nodes > 1;
  EXPECT_LE(gap / static_cast<double>(maps.bound.size()), grouped ? 0.005 : 0.002);
}

}  // namespace
}  // namespace evenkeel
