// This process's use of MPI. MPI is started on first use and ended with the process.
#pragma once

#include <mpi.h>

#include <string>

namespace evenkeel::internal {

class Session {
 public:
  // Starts MPI if needed. Throws Unsupported if it cannot be started or is closed.
  static void require();
  // After this, MPI is not called any more: it could write to memory that now has another owner.
  static void close(std::string why) noexcept;
  static bool closed() noexcept;
  // Throws CommError of `rank` if MPI is closed.
  static void require_open(int rank);
};

// Throws CommError of `rank` with MPI's error text if an MPI call failed.
void require_success(int code, int rank, const char* call);
std::string error_text(int code);

}  // namespace evenkeel::internal
