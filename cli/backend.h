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
};
void add_nodes(CLI::App& app, NodeOptions& options);
// The node of each rank, or nothing where no option says it. Collective for --nodes hosts. Throws
// InvalidArgument where two say it otherwise, or --two-levels has no nodes.
std::vector<int> node_of_rank(const CLI::App& app, const NodeOptions& options, int ranks, Communicator* comm);

// What `level` plans by, where --topology and --cost say it and links within and between nodes differ.
std::optional<StepLinks> given_links(const CLI::App& app, const NodeOptions& options, const MoeShape& shape,
                                     const Machine& machine, bool backward);

// Whether this process prints and writes.
inline bool is_first(const Communicator* comm) {
  return comm == nullptr || comm->rank() == RankId(0);
}

}  // namespace evenkeel::cli
