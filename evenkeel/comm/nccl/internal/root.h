// The state of one NCCL rank that is shared by the root communicator and all communicators split from it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "evenkeel/comm/communicator.h"
#include "evenkeel/comm/nccl/internal/library.h"
#include "evenkeel/comm/nccl/nccl_ranks.h"
#include "evenkeel/comm/progress.h"
#include "evenkeel/device/cuda/stream.h"

namespace evenkeel::internal {

// Aborts all communicators of a rank together.
class Root final : public StreamWatch {
 public:
  Root(Communicator& control, int gpu, const NcclOptions& options);
  ~Root() override;
  Root(const Root&) = delete;
  Root& operator=(const Root&) = delete;

  int gpu() const { return gpu_; }
  const Library& library() const { return library_; }
  // Makes an NCCL communicator among the ranks of `control`: all ranks of the root, or some of them.
  ncclComm_t add(Communicator& control);
  void remove(ncclComm_t comm) noexcept;

  // Called at the start of every call.
  void begin(const char* name);
  // Checks the result of every NCCL call, and waits until NCCL has enqueued the call.
  void check_enqueued(ncclResult_t result, ncclComm_t comm, const char* call);
  void check(double waited_seconds) override;
  void abort(const std::string& cause) noexcept;

 private:
  void wait_for(ncclComm_t comm, const char* call);
  [[noreturn]] void fail(ncclResult_t result, const char* call);
  void abort_all() noexcept;

  const Library& library_;
  Communicator& control_;
  int gpu_;
  NcclOptions options_;
  Progress progress_;
  std::vector<ncclComm_t> comms_;
  bool aborted_ = false;
};

}  // namespace evenkeel::internal
