#include "evenkeel/comm/mpi/internal/session.h"

#include <fmt/format.h>
#include <signal.h>

#include <utility>

#include "evenkeel/base/error.h"

namespace evenkeel::internal {

namespace {

struct State {
  bool ours = false;  // this process started it and must end it
  bool closed = false;
  std::string why;

  ~State() {
    int ended = 0;
    if (ours && !closed && MPI_Finalized(&ended) == MPI_SUCCESS && ended == 0) MPI_Finalize();
  }
};

State& state() {
  static State the_one;
  return the_one;
}

// Open MPI writes to the socket of a peer that has died, and SIGPIPE would end this rank as well.
void ignore_broken_pipes() {
  struct sigaction action {};
  if (sigaction(SIGPIPE, nullptr, &action) != 0 || action.sa_handler != SIG_DFL) return;
  action.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &action, nullptr);
}

}  // namespace

void Session::require() {
  State& now = state();
  if (now.closed) throw Unsupported("MPI cannot be used any more in this process: " + now.why);
  ignore_broken_pipes();
  int started = 0, ended = 0;
  MPI_Initialized(&started);
  MPI_Finalized(&ended);
  if (ended != 0) throw Unsupported("MPI has been ended (MPI_Finalize), and cannot be started again");
  if (started != 0) return;
  int given = 0;
  const int code = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &given);
  if (code != MPI_SUCCESS) throw Unsupported("MPI could not be started: " + error_text(code));
  now.ours = true;
}

void Session::close(std::string why) noexcept {
  State& now = state();
  if (!std::exchange(now.closed, true)) now.why = std::move(why);
}

bool Session::closed() noexcept {
  return state().closed;
}

void Session::require_open(int rank) {
  if (state().closed)
    throw CommError(rank, "a call", 0, "MPI cannot be used any more in this process: " + state().why);
}

std::string error_text(int code) {
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) return fmt::format("error {}", code);
  return {text, static_cast<std::size_t>(length)};
}

void require_success(int code, int rank, const char* call) {
  if (code == MPI_SUCCESS) return;
  const std::string why = fmt::format("rank {}'s call of {} failed: {}", rank, call, error_text(code));
  throw CommError(rank, call, 0, why);
}

}  // namespace evenkeel::internal
