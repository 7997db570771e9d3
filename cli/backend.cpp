#include "cli/backend.h"

#include <fmt/format.h>

#include "cli/options.h"
#include "cli/output.h"
#include "evenkeel/base/error.h"
#include "evenkeel/base/parse.h"
#include "evenkeel/comm/hosts.h"
#include "evenkeel/io/topology_file.h"
#include "evenkeel/plan/nodes.h"
#include "evenkeel/study/calibration.h"
#include "evenkeel/study/experiment.h"
#ifdef EVENKEEL_WITH_MPI
#include "evenkeel/comm/mpi/mpi_ranks.h"
#endif

namespace evenkeel::cli {

void add_backend(CLI::App& app, Backend& backend) {
  add_word(app, "--backend", backend, {"threads", "mpi"},
           "Ranks as threads, or the processes that mpirun has started");
}

#ifdef EVENKEEL_WITH_MPI
namespace {

void take_ranks(const CLI::App& app, const Communicator& comm, std::int64_t& ranks) {
  if (is_given(app, "--ranks") && ranks != comm.size())
    throw InvalidArgument("--ranks", fmt::format("{}, but there are {} processes", ranks, comm.size()),
                          fmt::format("{}, or to leave it out", comm.size()));
  ranks = comm.size();
}

}  // namespace
#endif

void on_ranks(const CLI::App& app, Backend backend, std::int64_t& ranks,
              const std::function<void(Communicator* comm)>& work) {
  if (backend == Backend::threads) return work(nullptr);
#ifdef EVENKEEL_WITH_MPI
  run_mpi_ranks(
      [&](Communicator& comm) {
        if (!is_first(&comm)) be_silent();
        take_ranks(app, comm, ranks);
        work(&comm);
      },
      {.deadline_seconds = kStudyDeadlineSeconds});
#else
  static_cast<void>(app);
  static_cast<void>(ranks);
  throw Unsupported("this evenkeel was built without MPI; with libopenmpi-dev installed, CMake finds it");
#endif
}

void add_nodes(CLI::App& app, NodeOptions& options) {
  app.add_option("--nodes", options.nodes,
                 "Nodes that the ranks fill in order, or `hosts`: those they run on")
      ->type_name("N|hosts");
  app.add_option("--topology", options.topology,
                 "Instead, the machine: a file, or NxMxh100; with --cost level plans for its links")
      ->type_name("FILE|NAME");
  app.add_flag("--two-levels", options.two_levels,
               "What several ranks of another node want crosses the link to it once");
}

namespace {

std::vector<int> given_nodes(const CLI::App& app, const NodeOptions& options, int ranks, Communicator* comm) {
  if (is_given(app, "--topology")) {
    refuse_if_given(app, "--nodes", "is what --topology says");
    const Topology topology = named_topology(options.topology);
    if (topology.num_ranks() != ranks)
      throw InvalidArgument("--topology",
                            fmt::format("has {} ranks, and there are {}", topology.num_ranks(), ranks),
                            fmt::format("one of {} ranks", ranks));
    return topology.description().node_of_rank;
  }
  if (!is_given(app, "--nodes")) {
    refuse_if_given(app, "--two-levels", "needs --nodes or --topology, which say where ranks are");
    return {};
  }
  if (options.nodes == "hosts") {
    if (comm == nullptr)
      throw InvalidArgument("--nodes", "hosts, and all ranks are threads of this one",
                            "a number, or --backend mpi");
    return host_of_rank(*comm);
  }
  const std::int64_t nodes = parse_whole("--nodes", options.nodes, 1, ranks);
  if (ranks % nodes != 0)
    throw InvalidArgument("--nodes", fmt::format("{} ranks are not equally many in {} nodes", ranks, nodes),
                          "a divisor of the ranks");
  std::vector<int> node_of;
  for (std::int64_t rank = 0; rank < ranks; ++rank) node_of.push_back(static_cast<int>(rank * nodes / ranks));
  return node_of;
}

}  // namespace

std::vector<int> node_of_rank(const CLI::App& app, const NodeOptions& options, int ranks,
                              Communicator* comm) {
  std::vector<int> nodes = given_nodes(app, options, ranks, comm);
  if (options.two_levels && !Nodes(nodes).two_levels())
    throw InvalidArgument("--two-levels", "there are not several nodes, one of several ranks",
                          "such nodes, or to leave it out");
  if (options.two_levels) refuse_if_given(app, "--budget", "is not kept by steps in two levels");
  return nodes;
}

std::optional<StepLinks> given_links(const CLI::App& app, const NodeOptions& options, const MoeShape& shape,
                                     const Machine& machine, bool backward) {
  if (!is_given(app, "--topology") || !is_given(app, "--cost")) return std::nullopt;
  StepLinks links = links_of(shape, named_topology(options.topology), machine, backward);
  if (!links_differ(links)) return std::nullopt;
  return links;
}

}  // namespace evenkeel::cli
