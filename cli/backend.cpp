#include "cli/backend.h"

#include <fmt/format.h>

#include "cli/options.h"
#include "cli/output.h"
#include "evenkeel/base/error.h"
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

}  // namespace evenkeel::cli
