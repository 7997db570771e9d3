// Seconds of what travels: a message, weights, an all-to-all.
//
// Model     A port sends x bytes in latency + (x + ramp x / (x + ramp)) / bandwidth: far fewer bytes than
//           ramp move at half of the bandwidth, far more at all of it. A rank has a port to its node, and
//           shares a network interface to other nodes. All ports and both directions work at the same time,
//           so the busiest decides.
// Checked   on published all-to-alls inside a node, and dispatches on 1 to 4 nodes
//           (tests/cost/published_test.cpp).
#pragma once

#include <span>
#include <vector>

#include "evenkeel/cost/machine.h"
#include "evenkeel/topology/topology.h"

namespace evenkeel {

// Bytes alone, without latency and ramp.
double wire_seconds(const Link& link, double bytes);
// One message between two ranks of a node, such as weights. None takes no time.
double transfer_seconds(const Machine& machine, double bytes);

// The most bytes of an all-to-all that leave or reach a rank from its node, and a network interface from
// other nodes.
struct PortBytes {
  double within = 0;
  double across = 0;
};
double exchange_seconds(const Machine& machine, const PortBytes& bytes);
// The network interface of each rank, numbered from 0: ranks_per_nic ranks of a node, in rank order, share
// one.
std::vector<std::size_t> nics_of(const Machine& machine, const Topology& topology);
// `bytes` [P, P] row by sender; the diagonal is not read. Latencies and bandwidths are the topology's, ramp
// and sharing are the machine's: ranks_per_nic ranks of a node, in rank order, share an interface. Throws
// InvalidArgument where `bytes` is not for the topology's ranks.
double exchange_seconds(const Machine& machine, const Topology& topology, std::span<const double> bytes);

// The same many times on one machine, and when each rank is done: as soon as its port is, and the interface
// that it shares. O(P^2) a call; reuses its memory. The topology must outlive it.
class ExchangeSeconds {
 public:
  ExchangeSeconds(const Machine& machine, const Topology& topology);

  // The slowest; `by_rank` [P] is written. `bytes` as above.
  double of(std::span<const double> bytes, std::span<double> by_rank);

 private:
  // A port adds up the bytes that pass it in one direction.
  struct Port {
    double bytes = 0;
    double wire = 0;     // seconds at the full bandwidth of each link
    double latency = 0;  // of the slowest message

    void add(const Link& link, double more);
    double seconds(double ramp) const;
  };
  void add_pairs(std::span<const double> bytes);
  void add_levels(std::span<const double> bytes);

  Machine machine_;
  const Topology& topology_;
  std::vector<std::size_t> nics_;        // by rank
  std::vector<Port> sent_, received_;    // by rank
  std::vector<Port> left_, reached_;     // by interface
  std::vector<double> within_, across_;  // [P, P] 1 for two ranks of a node, or of two nodes
  std::vector<double> reaching_within_, reaching_across_;  // [P] bytes that reach a rank
};

}  // namespace evenkeel
