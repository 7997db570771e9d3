#include "cli/backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

#include "cli/error_report.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/page_option.h"
#include "evenkeel/base/error.h"
#include "evenkeel/base/hash.h"
#include "evenkeel/base/parse.h"
#include "evenkeel/comm/gather.h"
#include "evenkeel/comm/hosts.h"
#include "evenkeel/io/topology_file.h"
#include "evenkeel/plan/nodes.h"
#include "evenkeel/study/calibration.h"
#include "evenkeel/study/experiment.h"
#ifdef EVENKEEL_WITH_MPI
#include "evenkeel/comm/mpi/mpi_ranks.h"
#endif

namespace evenkeel::cli {

void add_backend(CLI::App& app, BackendOptions& options) {
  add_word(app, "--backend", options.backend, {"threads", "mpi"},
           "Ranks as threads, or the processes that mpirun has started");
  add_number(app, "--deadline", options.deadline, 1e-3, 1e8,
             "MPI: seconds that others wait for a rank before it is reported");
}

#ifdef EVENKEEL_WITH_MPI
namespace {

void take_ranks(const CLI::App& app, const Communicator& comm, std::int64_t& ranks) {
  if (is_given(app, "--ranks") && ranks != comm.size())
    throw InvalidArgument("--ranks",
                          fmt::format("{}, but mpirun has started {} processes", ranks, comm.size()),
                          fmt::format("{}, or to leave it out", comm.size()));
  ranks = comm.size();
}

// Only rank 0 prints. If all ranks fail alike, rank 0 shall report that error itself rather than an abort by
// another rank, so the others give it up to 200 ms to fail first.
void await_first(Communicator& comm) {
  try {
    for (int wait = 0; wait < 200; ++wait) {
      comm.throw_if_aborted("an error");
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  } catch (const CommError&) {
    return;
  }
}

// Throws unless the ranks have one hash.
void require_one(Communicator& comm, const char* name, const Hash& hash, const std::string& what,
                 const std::string& right) {
  const std::vector<std::uint64_t> all = gather(comm, hash.value(), "command lines and files");
  const auto other = std::ranges::find_if(all, [&](std::uint64_t each) { return each != all.front(); });
  if (other != all.end())
    throw InvalidArgument(name, fmt::format("{} not the same on ranks 0 and {}", what, other - all.begin()),
                          right);
}

// A file that cannot be read has no bytes here; its reader says why.
Hash hash_of(const std::filesystem::path& path) {
  Hash hash;
  std::error_code error;
  std::vector<std::filesystem::path> files = {path};
  if (std::filesystem::is_directory(path, error))
    files.assign(std::filesystem::directory_iterator(path, error), {});
  std::ranges::sort(files);
  std::vector<char> bytes(1 << 20);
  for (const std::filesystem::path& each : files)
    for (std::ifstream file(each, std::ios::binary); file;) {
      file.read(bytes.data(), std::ssize(bytes));
      hash.add_bytes(std::as_bytes(std::span(bytes)).first(static_cast<std::size_t>(file.gcount())));
    }
  return hash;
}

// Ranks with different options, or with copies of a file that differ, would run different experiments as one
// job.
void require_one_job(const CLI::App& app, Communicator& comm) {
  const std::string command = page_origin().command;
  require_one(comm, kCommandLine, Hash().add_bytes(std::as_bytes(std::span(command))), "is",
              "one command line for all ranks");
  for (const char* option : {"--trace", "--weights", "--placement", "--topology", "--cost"}) {
    const CLI::Option* const found = app.get_option_no_throw(option);
    if (found == nullptr || found->count() == 0) continue;
    const auto file = found->as<std::string>();
    require_one(comm, option, hash_of(file), file + " is", "the same file on every host");
  }
}

}  // namespace
#endif

namespace {

// Each of these processes would start threads of its own for all ranks, and replace the others' output files.
void require_one_process(const CLI::App& app) {
  for (const char* variable : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"})
    if (const char* const size = std::getenv(variable); size != nullptr && std::string_view(size) != "1")
      if (!is_given(app, "--backend"))
        throw InvalidArgument(
            "--backend", fmt::format("is missing, and mpirun has started {} processes", size),
            "mpi (each process is a rank), or threads (each process runs all ranks by itself)");
}

}  // namespace

void on_ranks(const CLI::App& app, const BackendOptions& options, std::int64_t& ranks,
              const std::function<void(Communicator* comm)>& work) {
  if (options.backend == Backend::threads) {
    refuse_if_given(app, "--deadline", "applies only to --backend mpi");
    require_one_process(app);
    return work(nullptr);
  }
#ifdef EVENKEEL_WITH_MPI
  run_mpi_ranks(
      [&](Communicator& comm) {
        const bool is_first = comm.rank() == RankId(0);
        if (!is_first) be_silent();
        try {
          if (comm.size() == 1) say("note: one rank: mpirun has started no others");
          require_one_job(app, comm);
          take_ranks(app, comm, ranks);
          work(&comm);
        } catch (const Error&) {
          if (!is_first) await_first(comm);
          throw;
        }
      },
      {.deadline_seconds = options.deadline});
#else
  static_cast<void>(app);
  static_cast<void>(ranks);
  throw Unsupported("this evenkeel was built without MPI; install libopenmpi-dev and build it again");
#endif
}

void add_nodes(CLI::App& app, NodeOptions& options) {
  app.add_option("--nodes", options.nodes,
                 "Nodes that the ranks fill in order, or `hosts`: the hosts that they run on")
      ->type_name("N|hosts");
  app.add_option("--topology", options.topology,
                 "The machine instead: a file, or NxMxh100; with --cost, level plans for its links")
      ->type_name("FILE|NAME");
  app.add_flag("--two-levels", options.two_levels,
               "Data for several ranks of another node crosses the link between nodes once");
  app.add_flag("--sum-in-nodes", options.sum_in_nodes,
               "With --two-levels: each node sums a token's results before they leave it; last bits change");
}

namespace {

std::vector<int> given_nodes(const CLI::App& app, const NodeOptions& options, int ranks, Communicator* comm) {
  if (is_given(app, "--topology")) {
    refuse_if_given(app, "--nodes", "is already given by --topology");
    const Topology topology = named_topology(options.topology);
    if (topology.num_ranks() != ranks)
      throw InvalidArgument("--topology",
                            fmt::format("has {} ranks, but the run has {}", topology.num_ranks(), ranks),
                            fmt::format("a topology of {} ranks", ranks));
    return topology.description().node_of_rank;
  }
  if (!is_given(app, "--nodes")) {
    refuse_if_given(app, "--two-levels", "needs --nodes or --topology, which say where ranks are");
    return {};
  }
  if (options.nodes == "hosts") {
    if (comm == nullptr)
      throw InvalidArgument("--nodes", "hosts, but all ranks are threads on this host",
                            "a number, or --backend mpi");
    return host_of_rank(*comm);
  }
  std::int64_t nodes = 0;
  try {
    nodes = parse_whole("--nodes", options.nodes, 1, ranks);
  } catch (const InvalidArgument&) {
    throw InvalidArgument("--nodes", fmt::format("'{}'", options.nodes),
                          fmt::format("a whole number in 1..{}, or hosts", ranks));
  }
  if (ranks % nodes != 0)
    throw InvalidArgument("--nodes", fmt::format("{} ranks do not divide evenly over {} nodes", ranks, nodes),
                          "a divisor of the ranks");
  std::vector<int> node_of;
  for (std::int64_t rank = 0; rank < ranks; ++rank) node_of.push_back(static_cast<int>(rank * nodes / ranks));
  return node_of;
}

}  // namespace

RankPlaces places_of(const CLI::App& app, const NodeOptions& options, int ranks, Communicator* comm) {
  RankPlaces where{comm, given_nodes(app, options, ranks, comm), options.two_levels, options.sum_in_nodes};
  if (!options.two_levels) refuse_if_given(app, "--sum-in-nodes", "needs --two-levels");
  if (options.two_levels && !Nodes(where.node_of_rank).two_levels())
    throw InvalidArgument("--two-levels", "needs several nodes, at least one of them with several ranks",
                          "such nodes, or to leave it out");
  if (options.two_levels) refuse_if_given(app, "--budget", "does not work with --two-levels");
  return where;
}

std::optional<StepLinks> given_links(const CLI::App& app, const NodeOptions& options, const MoeShape& shape,
                                     const Machine& machine, bool backward) {
  if (!is_given(app, "--topology") || !is_given(app, "--cost")) return std::nullopt;
  StepLinks links = links_of(shape, named_topology(options.topology), machine, backward);
  if (!links_differ(links)) return std::nullopt;
  return links;
}

}  // namespace evenkeel::cli
