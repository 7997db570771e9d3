#include "evenkeel/cost/links.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "evenkeel/base/error.h"

namespace evenkeel {

namespace {

Link link_of(double bytes_per_second, double latency_seconds) {
  return {bytes_per_second * 1e-9, latency_seconds * 1e6};
}

// A port adds up the bytes that pass it in one direction.
struct Port {
  double bytes = 0;
  double wire = 0;     // seconds at the full bandwidth of each link
  double latency = 0;  // of the slowest message

  void add(const Link& link, double more) {
    if (more <= 0) return;
    bytes += more;
    wire += wire_seconds(link, more);
    latency = std::max(latency, link.latency_us * 1e-6);
  }
  double seconds(double ramp) const { return bytes > 0 ? latency + wire * (1 + ramp / (bytes + ramp)) : 0; }
};

double port_seconds(const Machine& machine, const Link& link, double bytes) {
  Port port;
  port.add(link, bytes);
  return port.seconds(machine.ramp_bytes);
}

}  // namespace

std::vector<std::size_t> nics_of(const Machine& machine, const Topology& topology) {
  const auto shared = static_cast<int>(machine.ranks_per_nic);
  std::vector<int> in_node(static_cast<std::size_t>(topology.num_nodes()));
  std::vector<std::size_t> latest(in_node.size()), nics;
  std::size_t count = 0;
  for (RankId rank : indices<RankId>(topology.num_ranks())) {
    const std::size_t node = topology.node_of(rank).offset();
    if (in_node[node]++ % shared == 0) latest[node] = count++;
    nics.push_back(latest[node]);
  }
  return nics;
}

double wire_seconds(const Link& link, double bytes) {
  return bytes / (link.gigabytes_per_s * 1e9);
}

double transfer_seconds(const Machine& machine, double bytes) {
  return port_seconds(machine, link_of(machine.link_bytes_per_second, machine.link_seconds), bytes);
}

double exchange_seconds(const Machine& machine, const PortBytes& bytes) {
  return std::max(
      transfer_seconds(machine, bytes.within),
      port_seconds(machine, link_of(machine.nic_bytes_per_second, machine.nic_seconds), bytes.across));
}

double exchange_seconds(const Machine& machine, const Topology& topology, std::span<const double> bytes) {
  const auto ranks = static_cast<std::size_t>(topology.num_ranks());
  if (bytes.size() != ranks * ranks)
    throw InvalidArgument("bytes", fmt::format("has {} numbers for {} ranks", bytes.size(), ranks),
                          fmt::format("{} x {}", ranks, ranks));
  const std::vector<std::size_t> nics = nics_of(machine, topology);
  std::vector<Port> sent(ranks), received(ranks), left(ranks), reached(ranks);
  for (RankId from : indices<RankId>(ranks))
    for (RankId to : indices<RankId>(ranks)) {
      if (from == to) continue;
      const Link link = topology.link(from, to);
      const double each = bytes[from.offset() * ranks + to.offset()];
      const bool within = topology.same_node(from, to);
      (within ? sent[from.offset()] : left[nics[from.offset()]]).add(link, each);
      (within ? received[to.offset()] : reached[nics[to.offset()]]).add(link, each);
    }
  double slowest = 0;
  for (const std::vector<Port>* ports : {&sent, &received, &left, &reached})
    for (const Port& port : *ports) slowest = std::max(slowest, port.seconds(machine.ramp_bytes));
  return slowest;
}

}  // namespace evenkeel
