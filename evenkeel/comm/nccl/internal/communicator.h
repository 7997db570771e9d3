// The communicator of one rank on NCCL, and what all that were split from one root share.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "evenkeel/comm/communicator.h"
#include "evenkeel/comm/nccl/internal/library.h"
#include "evenkeel/comm/nccl/nccl_ranks.h"
#include "evenkeel/comm/progress.h"
#include "evenkeel/device/cuda/stream.h"

namespace evenkeel::internal {

// The root that ends all communicators of a rank together.
class Root final : public StreamWatch {
 public:
  Root(Communicator& control, int gpu, const NcclOptions& options);
  ~Root() override;
  Root(const Root&) = delete;
  Root& operator=(const Root&) = delete;

  int gpu() const { return gpu_; }
  const Library& library() const { return library_; }
  // A new communicator of NCCL's among the ranks of `control`, which are those of the root or some of them.
  ncclComm_t add(Communicator& control);
  void remove(ncclComm_t comm) noexcept;

  // Every call begins with this.
  void begin(const char* name);
  // Every call of NCCL's goes through this, which waits until the call has been handed over.
  void handed_over(ncclResult_t result, ncclComm_t comm, const char* call);
  void look(double seconds) override;
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

class NcclCommunicator final : public Communicator {
 public:
  // `control` has exactly this communicator's ranks; `owned` is it where nobody else keeps it.
  NcclCommunicator(std::shared_ptr<Root> root, Communicator& control, std::unique_ptr<Communicator> owned);
  ~NcclCommunicator() override;

  RankId rank() const override { return control_.rank(); }
  int size() const override { return control_.size(); }
  Event all_gather(std::span<const std::byte> mine, std::span<std::byte> all, Stream& stream,
                   const char* name) override;
  Event send_receive(std::span<const SendSlice> sends, std::span<const ReceiveSlice> receives, Stream& stream,
                     const char* name) override;
  Event reduce(std::span<std::byte> values, ValueType type, Reduction reduction, Stream& stream,
               const char* name) override;
  Event barrier(Stream& stream, const char* name) override;
  std::unique_ptr<Communicator> split(int color) override;
  void throw_if_aborted(const char* name) override { root_->begin(name); }
  void abort(const std::string& cause) noexcept override { root_->abort(cause); }

 private:
  CudaStream& begin(Stream& stream, const char* name);
  void gather(const std::byte* mine, std::size_t bytes, std::byte* all, CudaStream& stream);
  void copy_to_oneself(std::span<const SendSlice> sends, std::span<const ReceiveSlice> receives,
                       CudaStream& stream);

  std::shared_ptr<Root> root_;
  std::unique_ptr<Communicator> owned_;
  Communicator& control_;
  ncclComm_t comm_;
  DeviceScratch scratch_;
};

}  // namespace evenkeel::internal
