#include "evenkeel/io/topology_file.h"

#include <nlohmann/json.hpp>
#include <random>

#include "evenkeel/topology/presets.h"
#include "tests/io/support.h"

namespace evenkeel {
namespace {

using Json = nlohmann::json;

void expect_same(const Topology& a, const Topology& b) {
  EXPECT_EQ(a.name(), b.name());
  EXPECT_EQ(a.description().node_of_rank, b.description().node_of_rank);
  EXPECT_EQ(a.description().speeds, b.description().speeds);
  EXPECT_EQ(a.description().capacities, b.description().capacities);
  EXPECT_EQ(a.devices_per_rank(), b.devices_per_rank());
  EXPECT_EQ(a.description().links.empty(), b.description().links.empty());
  for (RankId from : indices<RankId>(a.num_ranks()))
    for (RankId to : indices<RankId>(a.num_ranks()))
      if (from != to) {
        EXPECT_EQ(a.link(from, to), b.link(from, to));
      }
}

struct TopologyFile : InFolder {
  void expect_round_trip(const Topology& topology) {
    write_topology(topology, folder / "t.json");
    expect_same(read_topology(folder / "t.json"), topology);
  }
};

TEST_F(TopologyFile, OfAnyTopologyReadsBack) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const auto draw = [&](int most) { return static_cast<int>(random() % static_cast<unsigned>(most + 1)); };
    const auto link = [&] { return Link{(1 + draw(900)) / 7.0, draw(50) / 9.0}; };
    const int ranks = 1 + draw(6);
    const int nodes = 1 + draw(ranks - 1);
    Topology::Description description{.within = link(), .across = link(), .devices_per_rank = 1 + draw(3)};
    if (draw(1) == 0) description.name = "a \"name\" \xc3\xa9";
    for (int rank = 0; rank < ranks; ++rank) description.node_of_rank.push_back(rank % nodes);
    const bool links = draw(1) == 0, speeds = draw(1) == 0, capacities = draw(1) == 0;
    for (int pair = 0; links && pair < ranks * ranks; ++pair) description.links.push_back(link());
    for (int rank = 0; speeds && rank < ranks; ++rank) description.speeds.push_back((1 + draw(20)) / 3.0);
    for (int rank = 0; capacities && rank < ranks; ++rank) description.capacities.push_back(1 + draw(20));
    expect_round_trip(Topology(description));
  }
}

TEST_F(TopologyFile, OfEveryPresetReadsBack) {
  for (const char* name : {"8xh100", "3x8xh200", "gb200-nvl72"}) expect_round_trip(preset_topology(name));
}

Topology topology_of(Json json) {
  json.emplace("format", "evenkeel.topology.v1");
  return read_topology(source_of(json.dump()));
}

TEST_F(TopologyFile, CountsRanksByNodesOrListsThem) {
  const Topology counted = topology_of({{"num_nodes", 2},
                                        {"ranks_per_node", 2},
                                        {"within", {{"gigabytes_per_s", 450}}},
                                        {"across", {{"gigabytes_per_s", 50}, {"latency_us", 5}}}});
  EXPECT_EQ(counted.description().node_of_rank, (std::vector<int>{0, 0, 1, 1}));
  EXPECT_EQ(counted.link(RankId(0), RankId(2)), (Link{50, 5}));
  const Topology listed = topology_of({{"node_of_rank", {0, 1, 0}}});
  EXPECT_EQ(listed.description().node_of_rank, (std::vector<int>{0, 1, 0}));
  EXPECT_TRUE(listed.has_uniform_links());
}

TEST_F(TopologyFile, OfOneNodeNeedsNoLinkAcross) {
  const Topology one =
      topology_of({{"num_nodes", 1}, {"ranks_per_node", 4}, {"within", {{"gigabytes_per_s", 450}}}});
  EXPECT_EQ(one.link(RankId(0), RankId(3)).gigabytes_per_s, 450);
}

TEST_F(TopologyFile, WithAMatrixIgnoresItsDiagonal) {
  const Topology matrix = topology_of({{"node_of_rank", {0, 0}},
                                       {"gigabytes_per_s", {{nullptr, 10}, {20, "x"}}},
                                       {"latency_us", {{0, 1}, {2, 0}}}});
  EXPECT_EQ(matrix.link(RankId(0), RankId(1)), (Link{10, 1}));
  EXPECT_EQ(matrix.link(RankId(1), RankId(0)), (Link{20, 2}));
}

// The error message for a two-node topology in which these keys replace the original ones; null removes a
// key.
std::string topology_refusal(const Json& keys) {
  Json json = Json::parse(R"({"num_nodes": 2, "ranks_per_node": 2,
      "within": {"gigabytes_per_s": 450}, "across": {"gigabytes_per_s": 50}})");
  json.merge_patch(keys);
  return message_of<ParseError>([&] { topology_of(json); });
}

TEST_F(TopologyFile, NamesTheKeyThatIsWrong) {
  const std::pair<Json, const char*> wrong[] = {
      {{{"format", "evenkeel.placement.v1"}},
       "format: is \"evenkeel.placement.v1\", not \"evenkeel.topology.v1\""},
      {{{"num_nodes", 0}}, "num_nodes: is 0; allowed: 1..65536"},
      {{{"ranks_per_node", 65536}}, "ranks_per_node: with num_nodes 2 makes more than 65536 ranks"},
      {{{"node_of_rank", {0, 0}}},
       "node_of_rank: is given with num_nodes or ranks_per_node; give either node_of_rank, or num_nodes and "
       "ranks_per_node"},
      {{{"gigabytes_per_s", Json::array()}},
       "gigabytes_per_s: is given with within or across; give either matrices (gigabytes_per_s, latency_us) "
       "or within and across"},
      {{{"within", 450}}, "within: is a JSON number, not an object"},
      {{{"within", {{"gigabytes_per_s", nullptr}}}}, "within.gigabytes_per_s: is missing"},
      {{{"within", {{"gigabytes_per_s", "450"}}}}, "within.gigabytes_per_s: is a JSON string, not a number"},
      {{{"speeds", {1, 1, 1}}}, "speeds: is not a list of 4 elements, one for each rank"},
      {{{"speeds", {1, 0, 1, 1}}}, "speeds[1]: is 0; allowed: 1e-06..1e+06"},
      {{{"rooms", {1, 2, 3, 0}}}, "rooms[3]: is 0; allowed: 1..1073741824"},
      {{{"devices_per_rank", 0}}, "devices_per_rank: is 0; allowed: 1..65536"},
      {{{"name", 7}}, "name: is not a text"},
      {{{"across", nullptr}}, "across: is missing"},
      {{{"ranks_per_node", nullptr}}, "ranks_per_node: is missing"},
      // With such values costs would overflow.
      {{{"within", {{"gigabytes_per_s", -1}}}}, "within.gigabytes_per_s: is -1; allowed: 1e-06..1e+09"},
      {{{"within", {{"gigabytes_per_s", 5e-324}}}},
       "within.gigabytes_per_s: is 5e-324; allowed: 1e-06..1e+09"},
      {{{"across", {{"gigabytes_per_s", 1e308}}}},
       "across.gigabytes_per_s: is 1e+308; allowed: 1e-06..1e+09"},
      {{{"within", {{"latency_us", 1e300}}}}, "within.latency_us: is 1e+300; allowed: 0..1e+09"},
      {{{"speeds", {1, 1, 1e-308, 1}}}, "speeds[2]: is 1e-308; allowed: 1e-06..1e+06"},
      // An unknown key is an error; otherwise the default of the intended key would be used silently.
      {{{"within", {{"latency", 1}}}},
       "within.latency: is not a key of a topology; known: gigabytes_per_s, latency_us"},
  };
  for (const auto& [keys, message] : wrong) EXPECT_EQ(topology_refusal(keys), std::string("f: ") + message);
  EXPECT_THAT(topology_refusal({{"room", {1, 2, 3, 4}}}),
              testing::StartsWith("f: room: is not a key of a topology; known: format, "));
}

TEST_F(TopologyFile, RefusesAMatrixThatIsNotWhole) {
  const auto with = [](const Json& bandwidth, const Json& latency = nullptr) {
    Json json = {
        {"num_nodes", nullptr}, {"ranks_per_node", nullptr}, {"within", nullptr}, {"across", nullptr}};
    json.update({{"node_of_rank", {0, 0}}, {"gigabytes_per_s", bandwidth}, {"latency_us", latency}});
    return topology_refusal(json);
  };
  const Json whole = {{0, 1}, {1, 0}};
  EXPECT_EQ(with(Json::array({{0, 1}})),
            "f: gigabytes_per_s: is not a list of 2 elements, one for each rank");
  EXPECT_EQ(with({{0, 1}, Json::array({1})}),
            "f: gigabytes_per_s[1]: is not a list of 2 elements, one for each rank");
  EXPECT_EQ(with({{0, 1}, {nullptr, 0}}), "f: gigabytes_per_s[1][0]: is a JSON null, not a number");
  EXPECT_EQ(with({{0, 1}, {1e-308, 0}}), "f: gigabytes_per_s[1][0]: is 1e-308; allowed: 1e-06..1e+09");
  EXPECT_EQ(with(whole, 3), "f: latency_us: is not a list of 2 elements, one for each rank");
  EXPECT_EQ(with(whole, {{0, 1e300}, {1, 0}}), "f: latency_us[0][1]: is 1e+300; allowed: 0..1e+09");
}

TEST_F(TopologyFile, RefusesNodesWithGaps) {
  const auto with = [](const Json& nodes) {
    return message_of<ParseError>([&] { topology_of({{"node_of_rank", nodes}}); });
  };
  EXPECT_EQ(with({0, 2}), "f: node_of_rank[1]: is 2; allowed: 0..1, without gaps");
  EXPECT_EQ(with(Json::array()), "f: node_of_rank: has 0 ranks; allowed: 1..65536");
}

TEST_F(TopologyFile, IsJson) {
  EXPECT_EQ(message_of<ParseError>([] { read_topology(source_of(npy_text("{}"))); }),
            "f: is a npy file, but a topology must be JSON");
  EXPECT_EQ(message_of<ParseError>([] { read_topology(source_of("[1]")); }), "f: is not a JSON object");
}

}  // namespace
}  // namespace evenkeel
