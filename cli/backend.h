// --backend, --nodes, --topology and --two-levels: where the ranks of a measurement are.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "evenkeel/comm/communicator.h"
#include "evenkeel/cost/spill_costs.h"
#include "evenkeel/layer/moe_layer.h"
#include "evenkeel/study/experiment.h"

namespace evenkeel::cli {

enum class Backend { threads, mpi };

struct BackendOptions {
  Backend backend = Backend::threads;
  double deadline = kStudyDeadlineSeconds;
};
// --backend and --deadline.
void add_backend(CLI::App& app, BackendOptions& options);

// Threads: calls work(null). MPI: calls work(comm) in each process of mpirun; only the first process prints
// and writes files. With MPI, `ranks` becomes the number of processes; throws InvalidArgument if --ranks
// differs. Throws Unsupported if this build has no MPI.
void on_ranks(const CLI::App& app, const BackendOptions& options, std::int64_t& ranks,
              const std::function<void(Communicator* comm)>& work);

struct NodeOptions {
  std::string nodes;
  std::string topology;
  bool two_levels = false;
  bool sum_in_nodes = false;
};
void add_nodes(CLI::App& app, NodeOptions& options);
// The ranks of `comm`, or `ranks` threads if it is null, with their nodes if an option gives them. Collective
// for --nodes hosts. Throws InvalidArgument if two options give nodes, or if --two-levels is given without
// several nodes, of which at least one has several ranks.
RankPlaces places_of(const CLI::App& app, const NodeOptions& options, int ranks, Communicator* comm);

// The links of --topology, for planner `level` to plan by. Empty unless --topology and --cost are given and
// links within nodes differ from links between nodes.
std::optional<StepLinks> given_links(const CLI::App& app, const NodeOptions& options, const MoeShape& shape,
                                     const Machine& machine, bool backward);

}  // namespace evenkeel::cli
