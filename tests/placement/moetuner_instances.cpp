#include "tests/placement/moetuner_instances.h"

#include <fstream>

namespace evenkeel {

namespace {

using Json = nlohmann::json;

RoutingProfile profile_of(const Json& instance) {
  std::vector<std::int64_t> loads;
  for (const Json& layer : instance.at("loads"))
    for (const Json& load : layer) loads.push_back(load.get<std::int64_t>());
  std::vector<std::int64_t> transitions;
  for (const Json& layer : instance.at("transitions"))
    for (const Json& row : layer)
      for (const Json& count : row) transitions.push_back(count.get<std::int64_t>());
  return {instance.at("num_layers").get<int>(), instance.at("num_experts").get<int>(), std::move(loads),
          std::move(transitions)};
}

Clustering clusters_of(const Json& layers, int num_experts) {
  Clustering clustering;
  for (const Json& layer : layers) {
    auto& cluster_of = clustering.cluster_of.emplace_back(static_cast<std::size_t>(num_experts));
    int cluster = 0;
    for (const Json& members : layer) {
      for (const Json& expert : members) cluster_of[expert.get<std::size_t>()] = cluster;
      ++cluster;
    }
  }
  return clustering;
}

MoetunerInstance instance_of(const Json& json) {
  const Json& first = json.at("ilp1");
  const int experts = json.at("num_experts").get<int>();
  MoetunerInstance instance{.name = json.at("name").get<std::string>(),
                            .profile = profile_of(json),
                            .num_ranks = json.at("num_gpus").get<int>(),
                            .equal_optimum = first.at("exact_total").get<double>(),
                            .free_optimum = first.at("at_least_one_total").get<double>(),
                            .equal_by_layer = {},
                            .free_by_layer = {},
                            .clusters = clusters_of(first.at("exact_clusters"), experts),
                            .ranks = json.at("ilp2")};
  for (const Json& layer : first.at("per_layer")) {
    instance.equal_by_layer.push_back(layer.at("exact").get<double>());
    instance.free_by_layer.push_back(layer.at("at_least_one").get<double>());
  }
  return instance;
}

}  // namespace

Topology MoetunerInstance::topology(const std::string& links) const {
  if (links == "uniform") return Topology::uniform(1, num_ranks);
  return Topology::uniform(2, num_ranks / 2, {.gigabytes_per_s = 4}, {.gigabytes_per_s = 1});
}

double MoetunerInstance::rank_optimum(const std::string& links, PairObjective pairs) const {
  return ranks.at(links).at(pairs == PairObjective::worst_pair ? "max" : "sum").at("optimum").get<double>();
}

const std::vector<MoetunerInstance>& moetuner_instances() {
  static const std::vector<MoetunerInstance> instances = [] {
    const Json file = Json::parse(std::ifstream(EVENKEEL_SOURCE_DIR "/tests/data/moetuner.json"));
    std::vector<MoetunerInstance> all;
    for (const Json& json : file.at("instances")) all.push_back(instance_of(json));
    return all;
  }();
  return instances;
}

}  // namespace evenkeel
