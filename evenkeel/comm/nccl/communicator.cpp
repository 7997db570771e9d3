#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "evenkeel/base/error.h"
#include "evenkeel/comm/internal/arguments.h"
#include "evenkeel/comm/nccl/internal/root.h"
#include "evenkeel/device/cuda/runtime.cuh"

namespace evenkeel {

namespace {

using internal::Library;
using internal::Root;

// The bytes of those slices whose peer is this rank, in order.
auto of_oneself(const auto& slices, RankId me) {
  std::vector<decltype(slices.front().bytes)> mine;
  for (const auto& slice : slices)
    if (slice.peer == me && !slice.bytes.empty()) mine.push_back(slice.bytes);
  return mine;
}

class NcclCommunicator final : public Communicator {
 public:
  // `control` has exactly this communicator's ranks. `owned` holds it if nobody else does.
  NcclCommunicator(std::shared_ptr<Root> root, Communicator& control, std::unique_ptr<Communicator> owned)
      : root_(std::move(root)), owned_(std::move(owned)), control_(control), comm_(root_->add(control)) {}
  ~NcclCommunicator() override { root_->remove(comm_); }

  RankId rank() const override { return control_.rank(); }
  int size() const override { return control_.size(); }

  Event all_gather(std::span<const std::byte> mine, std::span<std::byte> all, Stream& stream,
                   const char* name) override {
    internal::require_gather_sizes(mine.size(), all.size(), size(), name);
    CudaStream& cuda = begin(stream, name);
    if (!mine.empty()) gather(mine.data(), mine.size(), all.data(), cuda);
    return cuda.mark();
  }

  Event send_receive(std::span<const SendSlice> sends, std::span<const ReceiveSlice> receives, Stream& stream,
                     const char* name) override {
    internal::require_peers("sends", sends, size());
    internal::require_peers("receives", receives, size());
    CudaStream& cuda = begin(stream, name);
    copy_to_oneself(sends, receives, cuda);
    const Library& library = root_->library();
    const cudaStream_t to = cuda::native(cuda);
    root_->check_enqueued(library.group_start(), comm_, "ncclGroupStart");
    ncclResult_t result = ncclSuccess;
    const auto keep_first = [&](ncclResult_t next) {
      if (result == ncclSuccess && next != ncclInProgress) result = next;
    };
    for (const SendSlice& slice : sends) {
      if (slice.peer == rank() || slice.bytes.empty()) continue;
      keep_first(
          library.send(slice.bytes.data(), slice.bytes.size(), ncclInt8, slice.peer.value(), comm_, to));
    }
    for (const ReceiveSlice& slice : receives) {
      if (slice.peer == rank() || slice.bytes.empty()) continue;
      keep_first(
          library.receive(slice.bytes.data(), slice.bytes.size(), ncclInt8, slice.peer.value(), comm_, to));
    }
    const ncclResult_t ended = library.group_end();
    root_->check_enqueued(result != ncclSuccess ? result : ended, comm_, "a group of ncclSend and ncclRecv");
    return cuda.mark();
  }

  Event reduce(std::span<std::byte> values, ValueType type, Reduction reduction, Stream& stream,
               const char* name) override {
    CudaStream& cuda = begin(stream, name);
    if (values.empty()) return cuda.mark();
    std::byte* const all = scratch_.lend(cuda, values.size() * static_cast<std::size_t>(size()));
    gather(values.data(), values.size(), all, cuda);
    cuda.reduce(all, size(), static_cast<std::int64_t>(values.size() / sizeof(std::int64_t)), type, reduction,
                values.data());
    scratch_.give_back(cuda);
    return cuda.mark();
  }

  Event barrier(Stream& stream, const char* name) override {
    CudaStream& cuda = begin(stream, name);
    const auto ranks = static_cast<std::size_t>(size());
    std::byte* const all = scratch_.lend(cuda, ranks);
    const auto me = static_cast<std::size_t>(rank().value());
    gather(all + me, 1, all, cuda);
    scratch_.give_back(cuda);
    return cuda.mark();
  }

  std::unique_ptr<Communicator> split(int color) override {
    root_->begin("split");
    std::unique_ptr<Communicator> part = control_.split(color);
    Communicator& control = *part;
    return std::make_unique<NcclCommunicator>(root_, control, std::move(part));
  }

  void throw_if_aborted(const char* name) override { root_->begin(name); }
  void abort(const std::string& cause) noexcept override { root_->abort(cause); }

 private:
  CudaStream& begin(Stream& stream, const char* name) {
    auto* cuda = dynamic_cast<CudaStream*>(&stream);
    if (cuda == nullptr || cuda->gpu() != root_->gpu())
      throw InvalidArgument("stream", "is not on the rank's GPU",
                            fmt::format("a CudaStream of GPU {}", root_->gpu()));
    root_->begin(name);
    cuda->flush();
    cuda->watch(root_);
    return *cuda;
  }

  void gather(const std::byte* mine, std::size_t bytes, std::byte* all, CudaStream& stream) {
    root_->check_enqueued(
        root_->library().all_gather(mine, all, bytes, ncclInt8, comm_, cuda::native(stream)), comm_,
        "ncclAllGather");
  }

  void copy_to_oneself(std::span<const SendSlice> sends, std::span<const ReceiveSlice> receives,
                       CudaStream& stream) {
    const auto out = of_oneself(sends, rank());
    const auto in = of_oneself(receives, rank());
    const bool same =
        out.size() == in.size() &&
        std::equal(out.begin(), out.end(), in.begin(), [](auto a, auto b) { return a.size() == b.size(); });
    if (!same)
      throw InvalidArgument("receives", "do not match the messages that this rank sends to itself",
                            "the same sizes in the same order");
    for (std::size_t i = 0; i < out.size(); ++i) {
      if (out[i].data() != in[i].data()) stream.copy(in[i].data(), out[i].data(), out[i].size());
    }
  }

  std::shared_ptr<Root> root_;
  std::unique_ptr<Communicator> owned_;
  Communicator& control_;
  ncclComm_t comm_;
  DeviceScratch scratch_;
};

}  // namespace

std::unique_ptr<Communicator> make_nccl_communicator(Communicator& control, int gpu,
                                                     const NcclOptions& options) {
  return std::make_unique<NcclCommunicator>(std::make_shared<internal::Root>(control, gpu, options), control,
                                            nullptr);
}

}  // namespace evenkeel
