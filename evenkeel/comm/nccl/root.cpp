#include "evenkeel/comm/nccl/internal/root.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "evenkeel/base/error.h"
#include "evenkeel/base/running_time.h"
#include "evenkeel/comm/gather.h"
#include "evenkeel/device/cuda/gpu.h"
#include "evenkeel/device/cuda/runtime.cuh"

namespace evenkeel::internal {

namespace {

int usable(int gpu) {
  cuda::require_gpu(gpu);
  return gpu;
}

}  // namespace

Root::Root(Communicator& control, int gpu, const NcclOptions& options)
    : library_(Library::get()), control_(control), gpu_(usable(gpu)), options_(options), progress_(control) {}

Root::~Root() {
  if (!comms_.empty()) abort_all();
}

ncclComm_t Root::add(Communicator& control) {
  EVENKEEL_CUDA_CALL(cudaSetDevice, gpu_);
  ncclUniqueId id{};
  if (control.rank().value() == 0 && library_.get_unique_id(&id) != ncclSuccess)
    progress_.fail("NCCL could not create an id for the communicator (ncclGetUniqueId)", 0);
  const std::vector<ncclUniqueId> ids = gather(control, id, "set-up of NCCL");
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;  // so that every call can be aborted
  ncclComm_t comm = nullptr;
  const ncclResult_t result =
      library_.init_rank(&comm, control.size(), ids.front(), control.rank().value(), &config);
  if (comm != nullptr) comms_.push_back(comm);
  check_enqueued(result, comm, "ncclCommInitRankConfig");
  return comm;
}

void Root::remove(ncclComm_t comm) noexcept {
  const auto found = std::find(comms_.begin(), comms_.end(), comm);
  if (found == comms_.end()) return;  // already aborted
  try {
    check_enqueued(library_.finalize(comm), comm, "ncclCommFinalize");
  } catch (const std::exception&) {
    return abort_all();
  }
  static_cast<void>(library_.destroy(comm));
  comms_.erase(std::find(comms_.begin(), comms_.end(), comm));
}

void Root::begin(const char* name) {
  progress_.count_operation(name);
  check(0);
}

void Root::check_enqueued(ncclResult_t result, ncclComm_t comm, const char* call) {
  if (result == ncclInProgress) return wait_for(comm, call);
  if (result != ncclSuccess) fail(result, call);
}

void Root::wait_for(ncclComm_t comm, const char* call) {
  RunningTime waited(std::chrono::milliseconds(100));
  for (;;) {
    ncclResult_t state = ncclSuccess;
    const ncclResult_t asked = library_.async_error(comm, &state);
    if (asked != ncclSuccess) fail(asked, call);
    if (state == ncclSuccess) return;
    if (state != ncclInProgress) fail(state, call);
    check(std::chrono::duration<double>(waited.look()).count());
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
}

// Polled by every wait: throws if the ranks have stopped, NCCL has failed, or the wait is too long.
void Root::check(double waited_seconds) {
  try {
    progress_.throw_if_aborted();
    if (aborted_) progress_.fail("the ranks have stopped", waited_seconds);
    for (ncclComm_t comm : comms_) {
      ncclResult_t state = ncclSuccess;
      if (library_.async_error(comm, &state) == ncclSuccess && state != ncclSuccess &&
          state != ncclInProgress)
        fail(state, progress_.name());
    }
    if (waited_seconds > options_.deadline_seconds) progress_.find_culprit(waited_seconds);
  } catch (const Error&) {
    abort_all();
    throw;
  }
}

void Root::fail(ncclResult_t result, const char* call) {
  progress_.fail(fmt::format("NCCL failed in {}: {}", call, library_.error_string(result)), 0);
}

void Root::abort(const std::string& cause) noexcept {
  control_.abort(cause);
  abort_all();
}

void Root::abort_all() noexcept {
  aborted_ = true;
  for (ncclComm_t comm : comms_) static_cast<void>(library_.abort(comm));
  comms_.clear();
}

}  // namespace evenkeel::internal
