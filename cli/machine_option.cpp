#include "cli/machine_option.h"

#include <fmt/format.h>

#include "cli/options.h"
#include "evenkeel/base/error.h"
#include "evenkeel/io/limits.h"
#include "evenkeel/io/topology_file.h"
#include "evenkeel/topology/presets.h"

namespace evenkeel::cli {

void add_machine(CLI::App& app, Machine& machine) {
  add_whole(app, "--ranks", machine.ranks, 1, max_ranks, "Ranks that share the experts")->default_str("");
  add_whole(app, "--nodes", machine.nodes, 1, max_ranks, "Nodes that the ranks fill in order");
  app.add_option("--topology", machine.topology,
                 "The machine: a file, or 8xh100, 8xh200, 2x8xh100, 2x8xh200, gb200-nvl72")
      ->type_name("FILE|NAME");
}

Topology topology_of(const CLI::App& app, const Machine& machine) {
  if (!is_given(app, "--topology")) {
    if (!is_given(app, "--ranks"))
      throw InvalidArgument("--ranks", "is not given, nor is --topology", "how many ranks there are");
    if (machine.ranks % machine.nodes != 0)
      throw InvalidArgument(
          "--nodes", fmt::format("{} ranks are not equally many in {} nodes", machine.ranks, machine.nodes),
          "a divisor of --ranks, or --topology with node_of_rank");
    return Topology::uniform(static_cast<int>(machine.nodes),
                             static_cast<int>(machine.ranks / machine.nodes));
  }
  refuse_if_given(app, "--nodes", "is what --topology says");
  Topology topology = is_topology_preset(machine.topology) ? preset_topology(machine.topology)
                                                           : read_topology(machine.topology);
  if (is_given(app, "--ranks") && machine.ranks != topology.num_ranks())
    throw InvalidArgument(
        "--ranks", fmt::format("{}, but {} has {}", machine.ranks, machine.topology, topology.num_ranks()),
        "to leave it out");
  return topology;
}

}  // namespace evenkeel::cli
