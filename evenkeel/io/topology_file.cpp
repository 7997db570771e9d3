#include "evenkeel/io/topology_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <ranges>
#include <string>
#include <variant>
#include <vector>

#include "evenkeel/base/error.h"
#include "evenkeel/io/atomic_file.h"
#include "evenkeel/io/internal/json.h"
#include "evenkeel/io/limits.h"
#include "evenkeel/topology/presets.h"

namespace evenkeel {

using namespace internal;

namespace {

constexpr std::string_view topology_format = "evenkeel.topology.v1";
constexpr std::int64_t max_matrix_ranks = 4096;

double number(const JsonField& field, const TopologyRange& range) {
  const double number = field.number();
  if (!range.holds(number)) field.fail("is {}; allowed: {}", number, range.text());
  return number;
}

void require_list(const JsonField& list, std::size_t size) {
  if (!list->is_array() || list->size() != size) list.fail("is not a list of {}", size);
}

// A key that is misspelt would otherwise leave its default in force.
void require_known_keys(const JsonField& object, std::initializer_list<std::string_view> known) {
  for (const auto& [key, value] : object->items())
    if (std::ranges::find(known, key) == known.end())
      object[key].fail("is no key of a topology; known: {}", fmt::join(known, ", "));
}

Link read_link(const JsonField& object) {
  if (!object->is_object()) object.fail("is a JSON {}, not an object", object->type_name());
  require_known_keys(object, {"gigabytes_per_s", "latency_us"});
  Link link{.gigabytes_per_s = number(object["gigabytes_per_s"], bandwidth_range)};
  if (const auto latency = object.find("latency_us")) link.latency_us = number(*latency, latency_range);
  return link;
}

std::vector<int> read_nodes(const JsonField& json) {
  std::vector<int> nodes;
  if (const auto stated = json.find("node_of_rank")) {
    if (json.find("num_nodes") || json.find("ranks_per_node"))
      stated->fail("stands beside num_nodes and ranks_per_node; give one of the two");
    const std::vector<std::int64_t> listed = stated->integers();
    if (listed.empty() || listed.size() > static_cast<std::size_t>(max_ranks))
      stated->fail("has {} ranks; allowed: 1..{}", listed.size(), max_ranks);
    for (std::int64_t node : listed)
      nodes.push_back(static_cast<int>(std::clamp<std::int64_t>(node, -1, max_ranks)));
    return nodes;
  }
  const int num_nodes = json["num_nodes"].integer(1, max_ranks);
  const JsonField of_node = json["ranks_per_node"];
  const int ranks_per_node = of_node.integer(1, max_ranks);
  if (std::int64_t{num_nodes} * ranks_per_node > max_ranks)
    of_node.fail("makes more than {} ranks", max_ranks);
  for (int rank = 0; rank < num_nodes * ranks_per_node; ++rank) nodes.push_back(rank / ranks_per_node);
  return nodes;
}

// Matrices of bandwidth and, optionally, latency, row by sender.
std::vector<Link> read_matrix(const JsonField& json, std::size_t ranks) {
  const JsonField bandwidth = json["gigabytes_per_s"];
  const auto latency = json.find("latency_us");
  if (ranks > static_cast<std::size_t>(max_matrix_ranks))
    bandwidth.fail("is for {} ranks; at most {}", ranks, max_matrix_ranks);
  require_list(bandwidth, ranks);
  if (latency) require_list(*latency, ranks);
  std::vector<Link> links;
  for (std::size_t from = 0; from < ranks; ++from) {
    const JsonField row = bandwidth[from];
    require_list(row, ranks);
    const auto latencies = latency ? std::optional((*latency)[from]) : std::nullopt;
    if (latencies) require_list(*latencies, ranks);
    for (std::size_t to = 0; to < ranks; ++to) {
      Link& link = links.emplace_back();
      if (from == to) continue;
      link.gigabytes_per_s = number(row[to], bandwidth_range);
      if (latencies) link.latency_us = number((*latencies)[to], latency_range);
    }
  }
  return links;
}

void read_links(const JsonField& json, Topology::Description& description) {
  const bool levels = json.find("within") || json.find("across");
  const bool matrix = json.find("gigabytes_per_s") || json.find("latency_us");
  if (levels && matrix)
    throw ParseError(json.file(), "gigabytes_per_s", "stands beside within and across; give one of the two");
  if (matrix) description.links = read_matrix(json, description.node_of_rank.size());
  if (!levels) return;
  description.within = read_link(json["within"]);
  // Without another node nothing crosses.
  const bool one_node = std::ranges::max(description.node_of_rank) == 0;
  description.across = one_node && !json.find("across") ? description.within : read_link(json["across"]);
}

void read_rank_lists(const JsonField& json, Topology::Description& description) {
  const std::size_t ranks = description.node_of_rank.size();
  if (const auto speeds = json.find("speeds")) {
    require_list(*speeds, ranks);
    for (std::size_t rank = 0; rank < ranks; ++rank)
      description.speeds.push_back(number((*speeds)[rank], speed_range));
  }
  if (const auto rooms = json.find("rooms")) {
    require_list(*rooms, ranks);
    for (std::size_t rank = 0; rank < ranks; ++rank)
      description.capacities.push_back((*rooms)[rank].integer(1, 1 << 30));
  }
}

Topology topology_of(const JsonField& json) {
  require_format(json, topology_format);
  require_known_keys(json,
                     {"format", "name", "num_nodes", "ranks_per_node", "node_of_rank", "within", "across",
                      "gigabytes_per_s", "latency_us", "speeds", "rooms", "devices_per_rank", "source"});
  Topology::Description description;
  if (const auto name = json.find("name")) {
    if (!(*name)->is_string()) name->fail("is not a text");
    description.name = (*name)->get<std::string>();
  }
  description.node_of_rank = read_nodes(json);
  read_links(json, description);
  read_rank_lists(json, description);
  if (const auto devices = json.find("devices_per_rank"))
    description.devices_per_rank = devices->integer(1, max_ranks);
  try {
    return Topology(std::move(description));
  } catch (const InvalidArgument& error) {
    throw ParseError(json.file(), "", error.what());
  }
}

Json json_of(const Link& link) {
  return {{"gigabytes_per_s", link.gigabytes_per_s}, {"latency_us", link.latency_us}};
}

void write_matrix(const Topology& topology, Json& json) {
  for (RankId from : indices<RankId>(topology.num_ranks())) {
    auto& bandwidth = json["gigabytes_per_s"].emplace_back(Json::array());
    auto& latency = json["latency_us"].emplace_back(Json::array());
    for (RankId to : indices<RankId>(topology.num_ranks())) {
      const Link link = from == to ? Link{0, 0} : topology.link(from, to);
      bandwidth.push_back(link.gigabytes_per_s);
      latency.push_back(link.latency_us);
    }
  }
}

}  // namespace

Topology read_topology(const ByteSource& source) {
  require_json(source, "a topology");
  const JsonDocument json = read_json(source);
  return topology_of({json, source.name()});
}

Topology named_topology(const std::string& name) {
  if (is_topology_preset(name)) return preset_topology(name);
  const auto open = [&] {
    try {
      return ByteSource(name);
    } catch (const ParseError& error) {  // whose last field says why
      throw ParseError(
          name, "",
          fmt::format("{}; machines known by name: {}", std::get<std::string>(error.data().back().value),
                      fmt::join(topology_presets() | std::views::transform(&TopologyPreset::name), ", ")));
    }
  };
  return read_topology(open());
}

void write_topology(const Topology& topology, const std::string& path) {
  const Topology::Description& description = topology.description();
  Json json{{"format", topology_format},
            {"node_of_rank", description.node_of_rank},
            {"devices_per_rank", description.devices_per_rank}};
  if (!description.name.empty()) json["name"] = description.name;
  if (description.links.empty()) {
    json["within"] = json_of(description.within);
    json["across"] = json_of(description.across);
  } else {
    write_matrix(topology, json);
  }
  if (!description.speeds.empty()) json["speeds"] = description.speeds;
  if (!description.capacities.empty()) json["rooms"] = description.capacities;
  write_file(path, json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
}

}  // namespace evenkeel
