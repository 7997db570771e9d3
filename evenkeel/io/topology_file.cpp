#include "evenkeel/io/topology_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <initializer_list>
#include <string>
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

// Calls `take` with each element of a list that has one element for each rank.
template <class Take>
void for_each_rank(const JsonField& list, std::size_t ranks, const Take& take) {
  if (!list->is_array() || list->size() != ranks)
    list.fail("is not a list of {} elements, one for each rank", ranks);
  for (std::size_t rank = 0; rank < ranks; ++rank) take(list[rank], rank);
}

// Without this check a misspelt key would silently keep the default.
void require_known_keys(const JsonField& object, std::initializer_list<std::string_view> known) {
  for (const auto& [key, value] : object->items())
    if (std::ranges::find(known, key) == known.end())
      object[key].fail("is not a key of a topology; known: {}", fmt::join(known, ", "));
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
      stated->fail(
          "is given with num_nodes or ranks_per_node; give either node_of_rank, or num_nodes and "
          "ranks_per_node");
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
    of_node.fail("with num_nodes {} makes more than {} ranks", num_nodes, max_ranks);
  for (int rank = 0; rank < num_nodes * ranks_per_node; ++rank) nodes.push_back(rank / ranks_per_node);
  return nodes;
}

// Reads a matrix with a number for each pair of ranks; rows are senders. The diagonal is ignored.
void read_matrix(const JsonField& rows, const TopologyRange& range, double Link::*field, std::size_t ranks,
                 std::vector<Link>& links) {
  if (ranks > static_cast<std::size_t>(max_matrix_ranks))
    rows.fail("is a matrix for {} ranks; at most {} are allowed: give within and across instead", ranks,
              max_matrix_ranks);
  links.resize(ranks * ranks);
  for_each_rank(rows, ranks, [&](const JsonField& row, std::size_t from) {
    for_each_rank(row, ranks, [&](const JsonField& each, std::size_t to) {
      if (from != to) links[from * ranks + to].*field = number(each, range);
    });
  });
}

void read_links(const JsonField& json, Topology::Description& description) {
  const bool levels = json.find("within") || json.find("across");
  const auto latency = json.find("latency_us");
  const bool matrix = json.find("gigabytes_per_s") || latency;
  if (levels && matrix)
    throw ParseError(json.file(), "gigabytes_per_s",
                     "is given with within or across; give either matrices (gigabytes_per_s, latency_us) or "
                     "within and across");
  const std::size_t ranks = description.node_of_rank.size();
  if (matrix)
    read_matrix(json["gigabytes_per_s"], bandwidth_range, &Link::gigabytes_per_s, ranks, description.links);
  if (latency) read_matrix(*latency, latency_range, &Link::latency_us, ranks, description.links);
  if (!levels) return;
  description.within = read_link(json["within"]);
  // With one node there are no links across nodes, so `across` may be missing.
  const bool one_node = std::ranges::max(description.node_of_rank) == 0;
  description.across = one_node && !json.find("across") ? description.within : read_link(json["across"]);
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
  const std::size_t ranks = description.node_of_rank.size();
  if (const auto speeds = json.find("speeds"))
    for_each_rank(*speeds, ranks, [&](const JsonField& speed, std::size_t) {
      description.speeds.push_back(number(speed, speed_range));
    });
  if (const auto rooms = json.find("rooms"))
    for_each_rank(*rooms, ranks, [&](const JsonField& room, std::size_t) {
      description.capacities.push_back(room.integer(1, 1 << 30));
    });
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

Json json_of(const Topology& topology) {
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
  return json;
}

}  // namespace

Topology read_topology(const ByteSource& source) {
  require_json(source, "a topology");
  const JsonDocument json = read_json(source);
  return topology_of({json, source.name()});
}

Topology named_topology(const std::string& name) {
  if (is_topology_preset(name)) return preset_topology(name);
  std::error_code error;
  if (!std::filesystem::exists(name, error))
    throw parse_error(name, "", "cannot be opened: No such file or directory; machines known by name: {}",
                      topology_preset_names());
  return read_topology(name);
}

std::string to_json(const Topology& topology) {
  return json_of(topology).dump(-1, ' ', false, Json::error_handler_t::replace);
}

void write_topology(const Topology& topology, const std::string& path) {
  write_file(path, json_of(topology).dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
}

}  // namespace evenkeel
