#include "evenkeel/cost/links.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "evenkeel/base/error.h"

namespace evenkeel {

namespace {

Link link_of(double bytes_per_second, double latency_seconds) {
  return {bytes_per_second * 1e-9, latency_seconds * 1e6};
}

double port_seconds(const Machine& machine, const Link& link, double bytes) {
  if (bytes <= 0) return 0;
  return link.latency_us * 1e-6 +
         wire_seconds(link, bytes) * (1 + machine.ramp_bytes / (bytes + machine.ramp_bytes));
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
  std::vector<double> by_rank(static_cast<std::size_t>(topology.num_ranks()));
  return ExchangeSeconds(machine, topology).of(bytes, by_rank);
}

void ExchangeSeconds::Port::add(const Link& link, double more) {
  if (more <= 0) return;
  bytes += more;
  wire += wire_seconds(link, more);
  latency = std::max(latency, link.latency_us * 1e-6);
}

double ExchangeSeconds::Port::seconds(double ramp) const {
  return bytes > 0 ? latency + wire * (1 + ramp / (bytes + ramp)) : 0;
}

ExchangeSeconds::ExchangeSeconds(const Machine& machine, const Topology& topology)
    : machine_(machine), topology_(topology), nics_(nics_of(machine, topology)) {
  const auto ranks = static_cast<std::size_t>(topology.num_ranks());
  sent_.resize(ranks);
  received_.resize(ranks);
  left_.resize(std::ranges::max(nics_) + 1);
  reached_.resize(left_.size());
  reaching_within_.resize(ranks);
  reaching_across_.resize(ranks);
  for (RankId from : indices<RankId>(ranks))
    for (RankId to : indices<RankId>(ranks)) {
      const bool within = topology.same_node(from, to);
      within_.push_back(within && from != to ? 1 : 0);
      across_.push_back(within ? 0 : 1);
    }
}

double ExchangeSeconds::of(std::span<const double> bytes, std::span<double> by_rank) {
  const std::size_t ranks = sent_.size();
  if (bytes.size() != ranks * ranks)
    throw InvalidArgument("bytes", fmt::format("has {} numbers for {} ranks", bytes.size(), ranks),
                          fmt::format("{} x {}", ranks, ranks));
  for (std::vector<Port>* ports : {&sent_, &received_, &left_, &reached_}) std::ranges::fill(*ports, Port{});
  if (topology_.description().links.empty())
    add_levels(bytes);
  else
    add_pairs(bytes);
  double slowest = 0;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    by_rank[rank] = 0;
    for (const Port* port : {&sent_[rank], &received_[rank], &left_[nics_[rank]], &reached_[nics_[rank]]})
      by_rank[rank] = std::max(by_rank[rank], port->seconds(machine_.ramp_bytes));
    slowest = std::max(slowest, by_rank[rank]);
  }
  return slowest;
}

void ExchangeSeconds::add_pairs(std::span<const double> bytes) {
  const std::size_t ranks = sent_.size();
  for (RankId from : indices<RankId>(ranks))
    for (RankId to : indices<RankId>(ranks)) {
      if (from == to) continue;
      const Link link = topology_.link(from, to);
      const double each = bytes[from.offset() * ranks + to.offset()];
      const bool within = topology_.same_node(from, to);
      (within ? sent_[from.offset()] : left_[nics_[from.offset()]]).add(link, each);
      (within ? received_[to.offset()] : reached_[nics_[to.offset()]]).add(link, each);
    }
}

// All links within nodes are equal, and so are all links across nodes. So the sums of bytes are enough.
void ExchangeSeconds::add_levels(std::span<const double> bytes) {
  const std::size_t ranks = sent_.size();
  const Topology::Description& topology = topology_.description();
  std::ranges::fill(reaching_within_, 0.0);
  std::ranges::fill(reaching_across_, 0.0);
  for (std::size_t from = 0; from < ranks; ++from) {
    const double* const row = bytes.data() + from * ranks;
    const double* const within = within_.data() + from * ranks;
    const double* const across = across_.data() + from * ranks;
    for (std::size_t to = 0; to < ranks; ++to) {
      reaching_within_[to] += row[to] * within[to];
      reaching_across_[to] += row[to] * across[to];
    }
    sent_[from].add(topology.within, std::transform_reduce(row, row + ranks, within, 0.0));
    left_[nics_[from]].add(topology.across, std::transform_reduce(row, row + ranks, across, 0.0));
  }
  for (std::size_t to = 0; to < ranks; ++to) {
    received_[to].add(topology.within, reaching_within_[to]);
    reached_[nics_[to]].add(topology.across, reaching_across_[to]);
  }
}

}  // namespace evenkeel
