#include "evenkeel/topology/presets.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <optional>
#include <utility>

#include "evenkeel/base/error.h"

namespace evenkeel {

namespace {

constexpr std::string_view hopper =
    "https://www.nvidia.com/en-sg/technologies/hopper-architecture/ (900 GB/s both ways per GPU); "
    "https://docs.nvidia.com/dgx-basepod/reference-architecture-infrastructure-foundation-enterprise-ai/"
    "latest/core-components.html (one ConnectX-7 of 400 Gb/s per GPU)";
constexpr std::string_view blackwell =
    "NVIDIA's page on NVLink, as republished at "
    "https://www.advancedhpc.com/pages/nvidia-nvlink-and-nvlink-switch "
    "(18 links of 100 GB/s, 1.8 TB/s both ways per GPU; 72 GPUs in one NVLink domain)";

constexpr double nvlink4_gigabytes_per_s = 900.0 / 2;
constexpr double nvlink5_gigabytes_per_s = 1800.0 / 2;
constexpr double infiniband_ndr_gigabytes_per_s = 400.0 / 8;

constexpr Link nvlink4 = {nvlink4_gigabytes_per_s, 0};
constexpr Link nvlink5 = {nvlink5_gigabytes_per_s, 0};
constexpr Link infiniband = {infiniband_ndr_gigabytes_per_s, 0};

constexpr std::array<TopologyPreset, 3> presets = {{
    {"h100", "nodes of H100 on NVLink 4, InfiniBand NDR between them", 0, nvlink4, infiniband, hopper},
    {"h200", "nodes of H200 on NVLink 4, InfiniBand NDR between them", 0, nvlink4, infiniband, hopper},
    {"gb200-nvl72", "72 GPUs of a GB200 NVL72 rack on NVLink 5", 72, nvlink5, nvlink5, blackwell},
}};

struct Named {
  const TopologyPreset* preset = nullptr;
  int nodes = 1;
  int ranks_per_node = 1;
};

// Removes one number from the end of "2x8x". The first call gives the ranks of a node, the second the number
// of nodes.
bool take_number(std::string_view& text, int& number) {
  if (text.empty() || text.back() != 'x') return false;
  text.remove_suffix(1);
  const std::size_t begin = text.find_last_not_of("0123456789") + 1;
  const std::string_view digits = text.substr(begin);
  if (digits.empty() || digits.front() == '0') return false;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  text.remove_suffix(digits.size());
  return error == std::errc() && number <= max_ranks;
}

std::optional<Named> find(std::string_view name) {
  for (const TopologyPreset& preset : presets) {
    if (!name.ends_with(preset.name)) continue;
    std::string_view counts = name.substr(0, name.size() - preset.name.size());
    Named named{&preset};
    if (preset.ranks > 0) {
      named.ranks_per_node = preset.ranks;
    } else {
      if (!take_number(counts, named.ranks_per_node)) return std::nullopt;
      if (!counts.empty() && !take_number(counts, named.nodes)) return std::nullopt;
    }
    if (counts.empty() && named.nodes <= max_ranks / named.ranks_per_node) return named;
  }
  return std::nullopt;
}

}  // namespace

std::span<const TopologyPreset> topology_presets() {
  return presets;
}

std::string topology_preset_names() {
  return "8xh100, 2x8xh100 (any NxMxh100 or NxMxh200: N nodes of M), gb200-nvl72";
}

bool is_topology_preset(std::string_view name) {
  return find(name).has_value();
}

std::string_view preset_device(std::string_view name) {
  const std::optional<Named> named = find(name);
  return named && named->preset->ranks == 0 ? named->preset->name : std::string_view();
}

Topology preset_topology(const std::string& name) {
  const std::optional<Named> named = find(name);
  if (!named)
    throw InvalidArgument("topology", fmt::format("there is no preset '{}'", name), topology_preset_names());
  const TopologyPreset& preset = *named->preset;
  Topology::Description description = Topology::uniform(named->nodes, named->ranks_per_node, preset.within,
                                                        named->nodes == 1 ? preset.within : preset.across)
                                          .description();
  description.name = name;
  return Topology(std::move(description));
}

}  // namespace evenkeel
