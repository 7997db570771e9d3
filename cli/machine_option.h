// --ranks, --nodes and --topology: the machine.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

#include "evenkeel/topology/topology.h"

namespace evenkeel::cli {

struct Machine {
  std::int64_t ranks = 0;
  std::int64_t nodes = 1;
  std::string topology;
};

void add_machine(CLI::App& app, Machine& machine);
// Throws InvalidArgument where nobody says how many ranks there are, or two say it otherwise.
Topology topology_of(const CLI::App& app, const Machine& machine);

}  // namespace evenkeel::cli
