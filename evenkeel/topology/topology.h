// The machine that experts are placed on: ranks in nodes, the links between them, what fits on a rank.
//
//   Topology flat = Topology::uniform(1, 8);                        // one node, all links alike
//   Topology two = Topology::uniform(2, 4, {450, 1.0}, {50, 5.0});  // NVLink inside, InfiniBand across
//
// A rank may stand for a tensor-parallel group of devices (`devices_per_rank`): it then holds each of its
// experts once, shared by the group, and its links are those of the group.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "evenkeel/base/index.h"

namespace evenkeel {

using NodeId = Index<struct NodeTag>;

// Above every machine known, and low enough that a damaged number asks for no unbounded memory.
inline constexpr int max_ranks = 65536;

// The range of a number of a topology: wider than any machine, and so far from the ends of a double that no
// cost or bound computed from it overflows or vanishes.
struct TopologyRange {
  double least = 0;
  double most = 0;

  // False for NaN.
  bool holds(double value) const { return value >= least && value <= most; }
  std::string text() const;  // "1e-06..1e+09"
};
inline constexpr TopologyRange bandwidth_range = {1e-6, 1e9};  // GB/s
inline constexpr TopologyRange latency_range = {0, 1e9};       // us
inline constexpr TopologyRange speed_range = {1e-6, 1e6};

// One direction of the way from one rank to another.
struct Link {
  double gigabytes_per_s = 1;  // 10^9 bytes a second, in bandwidth_range
  double latency_us = 0;       // of one message, in latency_range

  friend bool operator==(const Link&, const Link&) = default;
};

class Topology {
 public:
  struct Description {
    std::string name = {};               // free text, for messages and reports
    std::vector<int> node_of_rank = {};  // [P], nodes numbered from 0 without gaps
    Link within = {};                    // between two ranks of a node
    Link across = {};                    // between ranks of different nodes
    std::vector<Link> links =
        {};  // [P, P] row by sender; instead of the two levels. The diagonal is not used
    std::vector<double> speeds = {};  // [P] relative compute speed, in speed_range; empty: all 1
    std::vector<int> capacities =
        {};  // [P] most physical experts a rank can hold in one layer; empty: no limit
    int devices_per_rank = 1;
  };

  // Throws InvalidArgument: no ranks, a node without ranks, sizes that do not fit, a bandwidth, latency or
  // speed outside its range, a capacity that is not positive.
  explicit Topology(Description description);
  // `num_nodes` nodes of `ranks_per_node` ranks; the default links are all alike, so that costs count
  // assignments.
  static Topology uniform(int num_nodes, int ranks_per_node, Link within = {}, Link across = {});

  const std::string& name() const { return description_.name; }
  int num_ranks() const { return static_cast<int>(description_.node_of_rank.size()); }
  int num_nodes() const { return num_nodes_; }
  NodeId node_of(RankId rank) const { return NodeId(description_.node_of_rank[rank.offset()]); }
  bool same_node(RankId a, RankId b) const { return node_of(a) == node_of(b); }

  // From one rank to another one.
  Link link(RankId from, RankId to) const;
  // All links have the same bandwidth and latency, so ranks are interchangeable but for capacity and speed.
  bool has_uniform_links() const { return uniform_links_; }
  double speed(RankId rank) const;
  // None: no limit.
  std::optional<int> capacity(RankId rank) const;
  int devices_per_rank() const { return description_.devices_per_rank; }

  const Description& description() const { return description_; }

 private:
  Description description_;
  int num_nodes_ = 0;
  bool uniform_links_ = false;
};

}  // namespace evenkeel
