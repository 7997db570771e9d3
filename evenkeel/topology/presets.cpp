#include "evenkeel/topology/presets.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <ranges>

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

constexpr std::array<TopologyPreset, 5> presets = {{
    {"8xh100", "one node of 8 H100 on NVLink 4", 1, 8, nvlink4, nvlink4, hopper},
    {"8xh200", "one node of 8 H200 on NVLink 4", 1, 8, nvlink4, nvlink4, hopper},
    {"2x8xh100", "two nodes of 8 H100, InfiniBand NDR between them", 2, 8, nvlink4, infiniband, hopper},
    {"2x8xh200", "two nodes of 8 H200, InfiniBand NDR between them", 2, 8, nvlink4, infiniband, hopper},
    {"gb200-nvl72", "72 GPUs of a GB200 NVL72 rack on NVLink 5", 1, 72, nvlink5, nvlink5, blackwell},
}};

const TopologyPreset* find(std::string_view name) {
  const auto* found = std::ranges::find(presets, name, &TopologyPreset::name);
  return found == presets.end() ? nullptr : found;
}

}  // namespace

std::span<const TopologyPreset> topology_presets() {
  return presets;
}

bool is_topology_preset(std::string_view name) {
  return find(name) != nullptr;
}

Topology preset_topology(const std::string& name) {
  const TopologyPreset* preset = find(name);
  if (preset == nullptr)
    throw InvalidArgument(
        "topology", fmt::format("there is no preset '{}'", name),
        fmt::format("{}", fmt::join(presets | std::views::transform(&TopologyPreset::name), ", ")));
  Topology::Description description =
      Topology::uniform(preset->num_nodes, preset->ranks_per_node, preset->within, preset->across)
          .description();
  description.name = name;
  return Topology(std::move(description));
}

}  // namespace evenkeel
