#include "evenkeel/topology/topology.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "evenkeel/base/error.h"

namespace evenkeel {

namespace {

int count_nodes(const std::vector<int>& node_of_rank) {
  if (node_of_rank.empty()) throw InvalidArgument("node_of_rank", "is empty", "the node of each rank");
  const int nodes = 1 + *std::max_element(node_of_rank.begin(), node_of_rank.end());
  std::vector<bool> seen(static_cast<std::size_t>(std::max(nodes, 0)));
  for (std::size_t rank = 0; rank < node_of_rank.size(); ++rank) {
    const int node = node_of_rank[rank];
    if (node < 0 || node >= static_cast<int>(node_of_rank.size()))
      throw InvalidArgument(fmt::format("node_of_rank[{}]", rank), fmt::format("is {}", node),
                            fmt::format("0..{}, without gaps", node_of_rank.size() - 1));
    seen[static_cast<std::size_t>(node)] = true;
  }
  const auto empty = std::find(seen.begin(), seen.end(), false);
  if (empty != seen.end())
    throw InvalidArgument("node_of_rank", fmt::format("node {} has no ranks", empty - seen.begin()),
                          "nodes numbered from 0 without gaps");
  return nodes;
}

void require_link(const Link& link, const std::string& name) {
  if (!bandwidth_range.holds(link.gigabytes_per_s))
    throw InvalidArgument(name, fmt::format("has a bandwidth of {} GB/s", link.gigabytes_per_s),
                          bandwidth_range.text());
  if (!latency_range.holds(link.latency_us))
    throw InvalidArgument(name, fmt::format("has a latency of {} us", link.latency_us), latency_range.text());
}

void require_links(const Topology::Description& description) {
  const std::size_t ranks = description.node_of_rank.size();
  require_link(description.within, "within");
  require_link(description.across, "across");
  if (description.links.empty()) return;
  if (description.links.size() != ranks * ranks)
    throw InvalidArgument("links", fmt::format("has {} links for {} ranks", description.links.size(), ranks),
                          fmt::format("{} x {}", ranks, ranks));
  for (std::size_t from = 0; from < ranks; ++from)
    for (std::size_t to = 0; to < ranks; ++to)
      if (from != to)
        require_link(description.links[from * ranks + to], fmt::format("links[{}][{}]", from, to));
}

void require_ranks(const Topology::Description& description) {
  const std::size_t ranks = description.node_of_rank.size();
  const auto require_size = [&](const char* name, std::size_t size) {
    if (size != 0 && size != ranks)
      throw InvalidArgument(name, fmt::format("has {} numbers for {} ranks", size, ranks));
  };
  require_size("speeds", description.speeds.size());
  require_size("rooms", description.capacities.size());
  for (std::size_t rank = 0; rank < description.speeds.size(); ++rank)
    if (!speed_range.holds(description.speeds[rank]))
      throw InvalidArgument(fmt::format("speeds[{}]", rank), fmt::format("is {}", description.speeds[rank]),
                            speed_range.text());
  for (std::size_t rank = 0; rank < description.capacities.size(); ++rank)
    if (description.capacities[rank] < 1)
      throw InvalidArgument(fmt::format("rooms[{}]", rank),
                            fmt::format("is {}", description.capacities[rank]), "1 or more");
  if (description.devices_per_rank < 1)
    throw InvalidArgument("devices_per_rank", fmt::format("is {}", description.devices_per_rank),
                          "1 or more");
}

bool all_links_alike(const Topology::Description& description, int num_nodes) {
  const std::size_t ranks = description.node_of_rank.size();
  if (description.links.empty()) {
    const bool some_within = static_cast<std::size_t>(num_nodes) < ranks;
    const bool some_across = num_nodes > 1;
    return !some_within || !some_across || description.within == description.across;
  }
  for (std::size_t pair = 0; pair < description.links.size(); ++pair)
    if (pair / ranks != pair % ranks && description.links[pair] != description.links[1]) return false;
  return true;
}

}  // namespace

std::string TopologyRange::text() const {
  return fmt::format("{:g}..{:g}", least, most);
}

Topology::Topology(Description description) : description_(std::move(description)) {
  num_nodes_ = count_nodes(description_.node_of_rank);
  require_links(description_);
  require_ranks(description_);
  uniform_links_ = all_links_alike(description_, num_nodes_);
}

Topology Topology::uniform(int num_nodes, int ranks_per_node, Link within, Link across) {
  if (num_nodes < 1) throw InvalidArgument("num_nodes", fmt::format("is {}", num_nodes), "1 or more");
  if (ranks_per_node < 1)
    throw InvalidArgument("ranks_per_node", fmt::format("is {}", ranks_per_node), "1 or more");
  Description description{.within = within, .across = across};
  for (int node = 0; node < num_nodes; ++node)
    description.node_of_rank.insert(description.node_of_rank.end(), static_cast<std::size_t>(ranks_per_node),
                                    node);
  return Topology(std::move(description));
}

Link Topology::link(RankId from, RankId to) const {
  if (!description_.links.empty())
    return description_.links[from.offset() * static_cast<std::size_t>(num_ranks()) + to.offset()];
  return same_node(from, to) ? description_.within : description_.across;
}

double Topology::speed(RankId rank) const {
  return description_.speeds.empty() ? 1.0 : description_.speeds[rank.offset()];
}

std::optional<int> Topology::capacity(RankId rank) const {
  if (description_.capacities.empty()) return std::nullopt;
  return description_.capacities[rank.offset()];
}

}  // namespace evenkeel
