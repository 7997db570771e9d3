#include "evenkeel/io/topology_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <vector>

#include "evenkeel/base/error.h"
#include "evenkeel/io/array_file.h"
#include "evenkeel/io/atomic_file.h"
#include "evenkeel/io/internal/json.h"
#include "evenkeel/io/limits.h"

namespace evenkeel {

namespace {

using internal::Json;

constexpr std::string_view topology_format = "evenkeel.topology.v1";
constexpr std::int64_t max_matrix_ranks = 4096;

double number(const Json& value, const TopologyRange& range, const std::string& file,
              const std::string& key) {
  if (!value.is_number())
    throw ParseError(file, key, fmt::format("is a JSON {}, not a number", value.type_name()));
  const auto number = value.get<double>();
  if (!range.holds(number))
    throw ParseError(file, key, fmt::format("is {}; allowed: {}", number, range.text()));
  return number;
}

const Json& list_of(const Json& value, std::size_t size, const std::string& file, const std::string& key) {
  if (!value.is_array() || value.size() != size)
    throw ParseError(file, key, fmt::format("is not a list of {}", size));
  return value;
}

// A key that is misspelt would otherwise leave its default in force.
template <std::size_t N>
void require_known_keys(const Json& object, const std::array<std::string_view, N>& known,
                        const std::string& file, const std::string& prefix) {
  for (const auto& [key, value] : object.items())
    if (std::ranges::find(known, key) == known.end())
      throw ParseError(file, prefix + key,
                       fmt::format("is no key of a topology; known: {}", fmt::join(known, ", ")));
}

Link read_link(const Json& object, const std::string& file, const std::string& key) {
  constexpr std::array<std::string_view, 2> known = {"gigabytes_per_s", "latency_us"};
  if (!object.is_object())
    throw ParseError(file, key, fmt::format("is a JSON {}, not an object", object.type_name()));
  require_known_keys(object, known, file, key + ".");
  Link link;
  const auto bandwidth = object.find("gigabytes_per_s");
  if (bandwidth == object.end()) throw ParseError(file, key + ".gigabytes_per_s", "is missing");
  link.gigabytes_per_s = number(*bandwidth, bandwidth_range, file, key + ".gigabytes_per_s");
  if (const auto latency = object.find("latency_us"); latency != object.end())
    link.latency_us = number(*latency, latency_range, file, key + ".latency_us");
  return link;
}

std::vector<int> read_nodes(const Json& json, const std::string& file) {
  const auto stated = json.find("node_of_rank");
  const bool counted = json.contains("num_nodes") || json.contains("ranks_per_node");
  if (stated != json.end()) {
    if (counted)
      throw ParseError(file, "node_of_rank",
                       "stands beside num_nodes and ranks_per_node; give one of the two");
    std::vector<int> nodes;
    const std::vector<std::int64_t> listed = internal::integers(*stated, file, "node_of_rank");
    if (listed.empty() || listed.size() > static_cast<std::size_t>(max_ranks))
      throw ParseError(file, "node_of_rank",
                       fmt::format("has {} ranks; allowed: 1..{}", listed.size(), max_ranks));
    for (std::int64_t node : listed)
      nodes.push_back(static_cast<int>(std::clamp<std::int64_t>(node, -1, max_ranks)));
    return nodes;
  }
  const auto count = [&](const char* key) {
    return internal::small_integer(internal::member(json, key, file), 1, max_ranks, file, key);
  };
  const int num_nodes = count("num_nodes");
  const int ranks_per_node = count("ranks_per_node");
  if (std::int64_t{num_nodes} * ranks_per_node > max_ranks)
    throw ParseError(file, "ranks_per_node", fmt::format("makes more than {} ranks", max_ranks));
  std::vector<int> nodes;
  for (int rank = 0; rank < num_nodes * ranks_per_node; ++rank) nodes.push_back(rank / ranks_per_node);
  return nodes;
}

// Matrices of bandwidth and, optionally, latency, row by sender.
std::vector<Link> read_matrix(const Json& json, std::size_t ranks, const std::string& file) {
  const Json& bandwidth = internal::member(json, "gigabytes_per_s", file);
  const auto latency = json.find("latency_us");
  if (ranks > static_cast<std::size_t>(max_matrix_ranks))
    throw ParseError(file, "gigabytes_per_s",
                     fmt::format("is for {} ranks; at most {}", ranks, max_matrix_ranks));
  list_of(bandwidth, ranks, file, "gigabytes_per_s");
  if (latency != json.end()) list_of(*latency, ranks, file, "latency_us");
  std::vector<Link> links;
  for (std::size_t from = 0; from < ranks; ++from) {
    const std::string row = fmt::format("[{}]", from);
    list_of(bandwidth[from], ranks, file, "gigabytes_per_s" + row);
    if (latency != json.end()) list_of((*latency)[from], ranks, file, "latency_us" + row);
    for (std::size_t to = 0; to < ranks; ++to) {
      Link link;
      if (from != to) {
        const std::string cell = fmt::format("{}[{}]", row, to);
        link.gigabytes_per_s = number(bandwidth[from][to], bandwidth_range, file, "gigabytes_per_s" + cell);
        if (latency != json.end())
          link.latency_us = number((*latency)[from][to], latency_range, file, "latency_us" + cell);
      }
      links.push_back(link);
    }
  }
  return links;
}

void read_links(const Json& json, const std::string& file, Topology::Description& description) {
  const bool levels = json.contains("within") || json.contains("across");
  const bool matrix = json.contains("gigabytes_per_s") || json.contains("latency_us");
  if (levels && matrix)
    throw ParseError(file, "gigabytes_per_s", "stands beside within and across; give one of the two");
  if (matrix) {
    description.links = read_matrix(json, description.node_of_rank.size(), file);
    return;
  }
  if (!levels) return;
  description.within = read_link(internal::member(json, "within", file), file, "within");
  // Without another node nothing crosses.
  const auto across = json.find("across");
  const bool one_node = std::ranges::max(description.node_of_rank) == 0;
  if (across == json.end() && !one_node) throw ParseError(file, "across", "is missing");
  description.across = across == json.end() ? description.within : read_link(*across, file, "across");
}

void read_rank_lists(const Json& json, const std::string& file, Topology::Description& description) {
  const std::size_t ranks = description.node_of_rank.size();
  if (const auto speeds = json.find("speeds"); speeds != json.end()) {
    list_of(*speeds, ranks, file, "speeds");
    for (std::size_t rank = 0; rank < ranks; ++rank)
      description.speeds.push_back(
          number((*speeds)[rank], speed_range, file, fmt::format("speeds[{}]", rank)));
  }
  if (const auto rooms = json.find("rooms"); rooms != json.end()) {
    list_of(*rooms, ranks, file, "rooms");
    for (std::size_t rank = 0; rank < ranks; ++rank)
      description.capacities.push_back(
          internal::small_integer((*rooms)[rank], 1, 1 << 30, file, fmt::format("rooms[{}]", rank)));
  }
}

Topology topology_of(const Json& json, const std::string& file) {
  constexpr std::array<std::string_view, 13> known = {
      "format",          "name",       "num_nodes", "ranks_per_node", "node_of_rank",     "within", "across",
      "gigabytes_per_s", "latency_us", "speeds",    "rooms",          "devices_per_rank", "source"};
  const Json& format = internal::member(json, "format", file);
  if (format != topology_format)
    throw ParseError(file, "format", fmt::format("is {}, not \"{}\"", format.dump(), topology_format));
  require_known_keys(json, known, file, "");
  Topology::Description description;
  if (const auto name = json.find("name"); name != json.end()) {
    if (!name->is_string()) throw ParseError(file, "name", "is not a text");
    description.name = name->get<std::string>();
  }
  description.node_of_rank = read_nodes(json, file);
  read_links(json, file, description);
  read_rank_lists(json, file, description);
  if (const auto devices = json.find("devices_per_rank"); devices != json.end())
    description.devices_per_rank = internal::small_integer(*devices, 1, max_ranks, file, "devices_per_rank");
  try {
    return Topology(std::move(description));
  } catch (const InvalidArgument& error) {
    throw ParseError(file, "", error.what());
  }
}

nlohmann::json json_of(const Link& link) {
  return {{"gigabytes_per_s", link.gigabytes_per_s}, {"latency_us", link.latency_us}};
}

void write_matrix(const Topology& topology, nlohmann::json& json) {
  nlohmann::json bandwidth = nlohmann::json::array();
  nlohmann::json latency = nlohmann::json::array();
  for (RankId from : indices<RankId>(topology.num_ranks())) {
    nlohmann::json bandwidth_row = nlohmann::json::array();
    nlohmann::json latency_row = nlohmann::json::array();
    for (RankId to : indices<RankId>(topology.num_ranks())) {
      const Link link = from == to ? Link{0, 0} : topology.link(from, to);
      bandwidth_row.push_back(link.gigabytes_per_s);
      latency_row.push_back(link.latency_us);
    }
    bandwidth.push_back(std::move(bandwidth_row));
    latency.push_back(std::move(latency_row));
  }
  json["gigabytes_per_s"] = std::move(bandwidth);
  json["latency_us"] = std::move(latency);
}

}  // namespace

Topology read_topology(const std::string& path) {
  return read_topology(open_source(path));
}

Topology read_topology(std::shared_ptr<const ByteSource> source) {
  if (const FileFormat format = detect_format(*source); format != FileFormat::json)
    throw ParseError(source->name(), "", fmt::format("is {}; a topology is JSON", name_of(format)));
  return topology_of(internal::read_json(*source), source->name());
}

void write_topology(const Topology& topology, const std::string& path) {
  const Topology::Description& description = topology.description();
  nlohmann::json json{{"format", topology_format},
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
  AtomicFile out(path);
  out.write(json.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
  out.commit();
}

}  // namespace evenkeel
