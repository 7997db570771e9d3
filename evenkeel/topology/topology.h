// The machine that experts are placed on: its ranks and their nodes, the links between ranks, and the
// capacity of each rank.
//
//   Topology flat = Topology::uniform(1, 8);                        // one node, all links alike
//   Topology two = Topology::uniform(2, 4, {450, 1.0}, {50, 5.0});  // NVLink inside, InfiniBand across
//
// A rank may be a tensor-parallel group of devices (`devices_per_rank`). The group then shares each of the
// rank's experts, and the rank's links are those of the group.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "evenkeel/base/index.h"

namespace evenkeel {

using NodeId = Index<struct NodeTag>;

// Above the number of ranks of every known machine, and low enough that a damaged number cannot request
// unbounded memory.
inline constexpr int max_ranks = 65536;

// The allowed range of a number in a topology. It is wider than any machine needs, and narrow enough that no
// cost or bound computed from it overflows or underflows a double.
struct TopologyRange {
  double least = 0;
  double most = 0;

  // Returns false for NaN.
  bool holds(double value) const { return value >= least && value <= most; }
  std::string text() const;  // such as "1e-06..1e+09"
};
inline constexpr TopologyRange bandwidth_range = {1e-6, 1e9};  // GB/s
inline constexpr TopologyRange latency_range = {0, 1e9};       // us
inline constexpr TopologyRange speed_range = {1e-6, 1e6};

// The link from one rank to another, in one direction.
struct Link {
  double gigabytes_per_s = 1;  // 10^9 bytes a second, in bandwidth_range
  double latency_us = 0;       // latency of one message, in latency_range

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
        {};  // [P, P], rows are senders; replaces `within` and `across`. The diagonal is not used
    std::vector<double> speeds = {};  // [P] relative compute speed, in speed_range; empty: all 1
    std::vector<int> capacities =
        {};  // [P] most physical experts a rank can hold in one layer; empty: no limit
    int devices_per_rank = 1;
  };

  // Throws InvalidArgument if there are no ranks, a node has no ranks, or the sizes of lists do not match.
  // Also throws it if a bandwidth, latency or speed is outside its range, or a capacity is not positive.
  explicit Topology(Description description);
  // Makes `num_nodes` nodes of `ranks_per_node` ranks each. By default all links are the same, so costs are
  // proportional to numbers of assignments.
  static Topology uniform(int num_nodes, int ranks_per_node, Link within = {}, Link across = {});

  const std::string& name() const { return description_.name; }
  int num_ranks() const { return static_cast<int>(description_.node_of_rank.size()); }
  int num_nodes() const { return num_nodes_; }
  NodeId node_of(RankId rank) const { return NodeId(description_.node_of_rank[rank.offset()]); }
  bool same_node(RankId a, RankId b) const { return node_of(a) == node_of(b); }

  // `from` and `to` must differ.
  Link link(RankId from, RankId to) const;
  // True if all links have the same bandwidth and latency. Ranks then differ only in capacity and speed.
  bool has_uniform_links() const { return uniform_links_; }
  double speed(RankId rank) const;
  // The most physical experts that the rank can hold in one layer; nullopt if there is no limit.
  std::optional<int> capacity(RankId rank) const;
  int devices_per_rank() const { return description_.devices_per_rank; }

  const Description& description() const { return description_; }

 private:
  Description description_;
  int num_nodes_ = 0;
  bool uniform_links_ = false;
};

}  // namespace evenkeel
