#include "evenkeel/io/topology_file.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "evenkeel/base/error.h"
#include "evenkeel/topology/presets.h"
#include "tests/io/support.h"
#include "tests/routing/message.h"

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

TEST(TopologyFile, OfAnyTopologyReadsBack) {
  TempFolder folder;
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
    if (draw(1) == 0)
      for (int pair = 0; pair < ranks * ranks; ++pair) description.links.push_back(link());
    if (draw(1) == 0)
      for (int rank = 0; rank < ranks; ++rank) description.speeds.push_back((1 + draw(20)) / 3.0);
    if (draw(1) == 0)
      for (int rank = 0; rank < ranks; ++rank) description.capacities.push_back(1 + draw(20));
    const Topology topology(description);
    write_topology(topology, folder / "t.json");
    expect_same(read_topology(folder / "t.json"), topology);
  }
}

TEST(TopologyFile, OfEveryPresetReadsBack) {
  TempFolder folder;
  for (const TopologyPreset& preset : topology_presets()) {
    const Topology topology = preset_topology(std::string(preset.name));
    write_topology(topology, folder / "t.json");
    expect_same(read_topology(folder / "t.json"), topology);
  }
}

Topology topology_of(const Json& json) {
  return read_topology(source_of(json.dump()));
}

TEST(TopologyFile, CountsRanksByNodesOrListsThem) {
  const Topology counted = topology_of({{"format", "evenkeel.topology.v1"},
                                        {"num_nodes", 2},
                                        {"ranks_per_node", 2},
                                        {"within", {{"gigabytes_per_s", 450}}},
                                        {"across", {{"gigabytes_per_s", 50}, {"latency_us", 5}}}});
  EXPECT_EQ(counted.description().node_of_rank, (std::vector<int>{0, 0, 1, 1}));
  EXPECT_EQ(counted.link(RankId(0), RankId(2)), (Link{50, 5}));
  const Topology listed = topology_of({{"format", "evenkeel.topology.v1"}, {"node_of_rank", {0, 1, 0}}});
  EXPECT_EQ(listed.description().node_of_rank, (std::vector<int>{0, 1, 0}));
  EXPECT_TRUE(listed.has_uniform_links());
}

TEST(TopologyFile, OfOneNodeNeedsNoLinkAcross) {
  const Topology one = topology_of({{"format", "evenkeel.topology.v1"},
                                    {"num_nodes", 1},
                                    {"ranks_per_node", 4},
                                    {"within", {{"gigabytes_per_s", 450}}}});
  EXPECT_EQ(one.link(RankId(0), RankId(3)).gigabytes_per_s, 450);
}

TEST(TopologyFile, WithAMatrixIgnoresItsDiagonal) {
  const Topology matrix = topology_of({{"format", "evenkeel.topology.v1"},
                                       {"node_of_rank", {0, 0}},
                                       {"gigabytes_per_s", {{nullptr, 10}, {20, "x"}}},
                                       {"latency_us", {{0, 1}, {2, 0}}}});
  EXPECT_EQ(matrix.link(RankId(0), RankId(1)), (Link{10, 1}));
  EXPECT_EQ(matrix.link(RankId(1), RankId(0)), (Link{20, 2}));
}

const Json whole_topology =
    Json::parse(R"({"format": "evenkeel.topology.v1", "num_nodes": 2, "ranks_per_node": 2,
  "within": {"gigabytes_per_s": 450}, "across": {"gigabytes_per_s": 50}})");

// The message about `whole_topology` with one key replaced, or removed where the value is discarded.
std::string topology_refusal(const std::string& key, const Json& value) {
  Json json = whole_topology;
  json[key] = value;
  return message_of<ParseError>([&] { topology_of(json); });
}

TEST(TopologyFile, NamesTheKeyThatIsWrong) {
  EXPECT_EQ(topology_refusal("format", "evenkeel.placement.v1"),
            "f: format: is \"evenkeel.placement.v1\", not \"evenkeel.topology.v1\"");
  EXPECT_EQ(topology_refusal("num_nodes", 0), "f: num_nodes: is 0; allowed: 1..65536");
  EXPECT_EQ(topology_refusal("ranks_per_node", 65536), "f: ranks_per_node: makes more than 65536 ranks");
  EXPECT_EQ(topology_refusal("node_of_rank", {0, 0}),
            "f: node_of_rank: stands beside num_nodes and ranks_per_node; give one of the two");
  EXPECT_EQ(topology_refusal("gigabytes_per_s", Json::array()),
            "f: gigabytes_per_s: stands beside within and across; give one of the two");
  EXPECT_EQ(topology_refusal("within", 450), "f: within: is a JSON number, not an object");
  EXPECT_EQ(topology_refusal("within", {{"latency_us", 1}}), "f: within.gigabytes_per_s: is missing");
  EXPECT_EQ(topology_refusal("within", {{"gigabytes_per_s", "450"}}),
            "f: within.gigabytes_per_s: is a JSON string, not a number");
  EXPECT_EQ(topology_refusal("within", {{"gigabytes_per_s", -1}}),
            "f: within.gigabytes_per_s: is -1; allowed: 1e-06..1e+09");
  EXPECT_EQ(topology_refusal("speeds", {1, 1, 1}), "f: speeds: is not a list of 4");
  EXPECT_EQ(topology_refusal("speeds", {1, 0, 1, 1}), "f: speeds[1]: is 0; allowed: 1e-06..1e+06");
  EXPECT_EQ(topology_refusal("rooms", {1, 2, 3, 0}), "f: rooms[3]: is 0; allowed: 1..1073741824");
  EXPECT_EQ(topology_refusal("devices_per_rank", 0), "f: devices_per_rank: is 0; allowed: 1..65536");
  EXPECT_EQ(topology_refusal("name", 7), "f: name: is not a text");
}

TEST(TopologyFile, RefusesNumbersFromWhichCostsWouldOverflow) {
  EXPECT_EQ(topology_refusal("within", {{"gigabytes_per_s", 5e-324}}),
            "f: within.gigabytes_per_s: is 5e-324; allowed: 1e-06..1e+09");
  EXPECT_EQ(topology_refusal("across", {{"gigabytes_per_s", 1e308}}),
            "f: across.gigabytes_per_s: is 1e+308; allowed: 1e-06..1e+09");
  EXPECT_EQ(topology_refusal("within", {{"gigabytes_per_s", 1}, {"latency_us", 1e300}}),
            "f: within.latency_us: is 1e+300; allowed: 0..1e+09");
  EXPECT_EQ(topology_refusal("speeds", {1, 1, 1e-308, 1}), "f: speeds[2]: is 1e-308; allowed: 1e-06..1e+06");
  Json matrix = {{"format", "evenkeel.topology.v1"}, {"num_nodes", 1}, {"ranks_per_node", 2}};
  matrix["gigabytes_per_s"] = {{0, 1}, {1e-308, 0}};
  EXPECT_EQ(message_of<ParseError>([&] { topology_of(matrix); }),
            "f: gigabytes_per_s[1][0]: is 1e-308; allowed: 1e-06..1e+09");
  matrix["gigabytes_per_s"] = {{0, 1}, {1, 0}};
  matrix["latency_us"] = {{0, 1e300}, {1, 0}};
  EXPECT_EQ(message_of<ParseError>([&] { topology_of(matrix); }),
            "f: latency_us[0][1]: is 1e+300; allowed: 0..1e+09");
}

TEST(TopologyFile, RefusesKeysItDoesNotKnowSinceTheirDefaultsWouldStand) {
  EXPECT_TRUE(topology_refusal("room", {1, 2, 3, 4})
                  .starts_with("f: room: is no key of a topology; known: format, "));
  EXPECT_EQ(topology_refusal("within", {{"gigabytes_per_s", 450}, {"latency", 1}}),
            "f: within.latency: is no key of a topology; known: gigabytes_per_s, latency_us");
}

TEST(TopologyFile, RefusesWhatIsMissing) {
  Json json = whole_topology;
  json.erase("across");
  EXPECT_EQ(message_of<ParseError>([&] { topology_of(json); }), "f: across: is missing");
  json = whole_topology;
  json.erase("ranks_per_node");
  EXPECT_EQ(message_of<ParseError>([&] { topology_of(json); }), "f: ranks_per_node: is missing");
  json = {{"format", "evenkeel.topology.v1"}, {"node_of_rank", {0, 0}}, {"gigabytes_per_s", {{0, 1}}}};
  EXPECT_EQ(message_of<ParseError>([&] { topology_of(json); }), "f: gigabytes_per_s: is not a list of 2");
  json["gigabytes_per_s"] = {{0, 1}, {1}};
  EXPECT_EQ(message_of<ParseError>([&] { topology_of(json); }), "f: gigabytes_per_s[1]: is not a list of 2");
  json["gigabytes_per_s"] = {{0, 1}, {nullptr, 0}};
  EXPECT_EQ(message_of<ParseError>([&] { topology_of(json); }),
            "f: gigabytes_per_s[1][0]: is a JSON null, not a number");
  json["gigabytes_per_s"] = {{0, 1}, {1, 0}};
  json["latency_us"] = 3;
  EXPECT_EQ(message_of<ParseError>([&] { topology_of(json); }), "f: latency_us: is not a list of 2");
}

TEST(TopologyFile, RefusesNodesWithGaps) {
  const Json json = {{"format", "evenkeel.topology.v1"}, {"node_of_rank", {0, 2}}};
  EXPECT_EQ(message_of<ParseError>([&] { topology_of(json); }),
            "f: node_of_rank[1]: is 2; allowed: 0..1, without gaps");
  EXPECT_EQ(message_of<ParseError>([&] {
              topology_of({{"format", "evenkeel.topology.v1"}, {"node_of_rank", Json::array()}});
            }),
            "f: node_of_rank: has 0 ranks; allowed: 1..65536");
}

TEST(TopologyFile, IsJson) {
  EXPECT_EQ(message_of<ParseError>([] { read_topology(source_of(npy_text("{}"))); }),
            "f: is npy; a topology is JSON");
  EXPECT_EQ(message_of<ParseError>([] { read_topology(source_of("[1]")); }), "f: is not a JSON object");
}

}  // namespace
}  // namespace evenkeel
