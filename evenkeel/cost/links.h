// Predicts the seconds of a message, of a weight transfer and of an all-to-all.
//
// Model     A port sends x bytes in latency + (x + ramp x / (x + ramp)) / bandwidth: far fewer bytes than
//           ramp move at half of the bandwidth, far more at the full bandwidth. A rank has a port to its
//           node, and shares a network interface to other nodes. All ports and both directions work at the
//           same time, so the busiest decides.
// Checked   on published all-to-alls inside a node, and dispatches on 1 to 4 nodes
//           (tests/cost/published_test.cpp).
#pragma once

#include <span>
#include <vector>

#include "evenkeel/cost/machine.h"
#include "evenkeel/topology/topology.h"

namespace evenkeel {

// The time of the bytes alone, without latency and ramp.
double wire_seconds(const Link& link, double bytes);
// One message between two ranks of a node, such as weights; 0 for no bytes.
double transfer_seconds(const Machine& machine, double bytes);

// An all-to-all in two numbers: the most bytes that pass a rank's port to its node in one direction, and the
// most that pass a network interface to other nodes in one direction.
struct PortBytes {
  double within = 0;
  double across = 0;
};
double exchange_seconds(const Machine& machine, const PortBytes& bytes);
// The network interface of each rank, numbered from 0: ranks_per_nic ranks of a node, in rank order, share
// one.
std::vector<std::size_t> nics_of(const Machine& machine, const Topology& topology);
// `bytes` [P, P], one row per sender; the diagonal is not read. The topology gives latencies and bandwidths.
// The machine gives the ramp and ranks_per_nic: how many ranks of a node, in rank order, share an interface.
// Throws InvalidArgument unless `bytes` has P x P numbers.
double exchange_seconds(const Machine& machine, const Topology& topology, std::span<const double> bytes);

// exchange_seconds() for many calls on one machine. It also says when each rank is done, which is when both
// its port and the interface that it shares are done. O(P^2) a call; reuses its memory. The topology must
// outlive this object.
class ExchangeSeconds {
 public:
  ExchangeSeconds(const Machine& machine, const Topology& topology);

  // Returns the slowest rank's seconds and fills `by_rank` [P]. `bytes` as for exchange_seconds().
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
  std::vector<double> within_, across_;  // [P, P] within_: 1 for two ranks of one node; across_: of two nodes
  std::vector<double> reaching_within_, reaching_across_;  // [P] bytes that reach a rank
};

}  // namespace evenkeel
