// This process's use of MPI: started when it is first wanted, ended with the process.
#pragma once

#include <mpi.h>

#include <string>

namespace evenkeel::internal {

class Session {
 public:
  // Throws Unsupported where MPI cannot be started, or must not be called any more.
  static void require();
  // From now on MPI is not called: it could write to memory that is somebody else's by then.
  static void close(std::string why) noexcept;
  static bool closed() noexcept;
  // Throws CommError of `rank`, who is about to call MPI, where it is closed.
  static void require_open(int rank);
};

// Throws CommError of `rank` with MPI's words where a call of MPI's failed.
void require_success(int code, int rank, const char* call);
std::string words_of(int code);

}  // namespace evenkeel::internal
