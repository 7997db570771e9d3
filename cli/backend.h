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

// Calls work(null) for threads; on MPI work(comm) in each of mpirun's processes, of which the first alone
// prints and writes. `ranks` is then how many there are, and --ranks must not say otherwise. Throws
// Unsupported where this build has no MPI.
void on_ranks(const CLI::App& app, const BackendOptions& options, std::int64_t& ranks,
              const std::function<void(Communicator* comm)>& work);

struct NodeOptions {
  std::string nodes;
  std::string topology;
  bool two_levels = false;
  bool sum_in_nodes = false;
};
void add_nodes(CLI::App& app, NodeOptions& options);
// The ranks of `comm`, or as many threads, on their nodes where an option says these. Collective for --nodes
// hosts. Throws InvalidArgument where two options name nodes, or --two-levels has none in two levels.
RankPlaces places_of(const CLI::App& app, const NodeOptions& options, int ranks, Communicator* comm);

// The links that `level` plans by: those of --topology beside --cost, where they differ within and between
// nodes.
std::optional<StepLinks> given_links(const CLI::App& app, const NodeOptions& options, const MoeShape& shape,
                                     const Machine& machine, bool backward);

}  // namespace evenkeel::cli
