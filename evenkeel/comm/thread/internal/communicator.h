// The communicator of one rank that is a thread: checks arguments, and turns calls into operations.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "evenkeel/base/error.h"
#include "evenkeel/comm/communicator.h"
#include "evenkeel/comm/internal/arguments.h"
#include "evenkeel/comm/thread/internal/operation.h"
#include "evenkeel/comm/thread/internal/world.h"

namespace evenkeel::internal {

class ThreadCommunicator final : public Communicator {
 public:
  // With as many operations as a layer has pending at once; who has more makes them when they are first
  // wanted.
  ThreadCommunicator(std::shared_ptr<Group> group, int me) : group_(std::move(group)), me_(me) {
    constexpr int kUsual = 4;
    for (int i = 0; i < kUsual; ++i) operations_.push_back(std::make_unique<Operation>(*group_, me_));
  }

  RankId rank() const override { return RankId(me_); }
  int size() const override { return group_->size(); }

  Event all_gather(std::span<const std::byte> mine, std::span<std::byte> all, Stream& stream,
                   const char* name) override {
    require_gather_sizes(mine.size(), all.size(), size(), name);
    Operation& operation = begin(name, Channel::collectives, stream);
    for (int peer = 0; peer < size(); ++peer) {
      operation.send(peer, mine);
      operation.receive(peer, all.subspan(static_cast<std::size_t>(peer) * mine.size(), mine.size()));
    }
    return post(operation, stream);
  }

  Event send_receive(std::span<const SendSlice> sends, std::span<const ReceiveSlice> receives, Stream& stream,
                     const char* name) override {
    require_peers("sends", sends, size());
    require_peers("receives", receives, size());
    Operation& operation = begin(name, Channel::messages, stream);
    for (const SendSlice& slice : sends) operation.send(slice.peer.value(), slice.bytes);
    for (const ReceiveSlice& slice : receives) operation.receive(slice.peer.value(), slice.bytes);
    return post(operation, stream);
  }

  Event reduce(std::span<std::byte> values, ValueType type, Reduction reduction, Stream& stream,
               const char* name) override {
    Operation& operation = begin(name, Channel::collectives, stream);
    const std::span<std::byte> gathered = operation.reduce(values, type, reduction);
    for (int peer = 0; peer < size(); ++peer) {
      operation.send(peer, values);
      operation.receive(peer,
                        gathered.subspan(static_cast<std::size_t>(peer) * values.size(), values.size()));
    }
    return post(operation, stream);
  }

  Event barrier(Stream& stream, const char* name) override {
    Operation& operation = begin(name, Channel::collectives, stream);
    for (int peer = 0; peer < size(); ++peer) operation.meet(peer);
    return post(operation, stream);
  }

  std::unique_ptr<Communicator> split(int color) override {
    std::vector<int> colors(static_cast<std::size_t>(size()));
    CpuStream stream;
    all_gather(std::as_bytes(std::span(&color, 1)), std::as_writable_bytes(std::span(colors)), stream,
               "split")
        .wait();
    std::vector<int> members;
    int me = 0;
    for (int peer = 0; peer < size(); ++peer) {
      if (colors[static_cast<std::size_t>(peer)] != color) continue;
      if (peer == me_) me = static_cast<int>(members.size());
      members.push_back(group_->world_rank(peer));
    }
    return std::make_unique<ThreadCommunicator>(world().join(group_.get(), splits_++, color, members), me);
  }

  void throw_if_aborted(const char* name) override { world().check(world_rank(), name); }

  void abort(const std::string& cause) noexcept override {
    world().abort_for(world_rank(), "aborted", cause);
    world().withdraw_all(world_rank());
  }

 private:
  Operation& begin(const char* name, Channel channel, Stream& stream) {
    world().check(world_rank(), name);
    DeviceStream* const device = prepare(stream);
    const auto idle = std::find_if(operations_.begin(), operations_.end(),
                                   [](const auto& operation) { return !operation->in_use(); });
    Operation& operation = idle != operations_.end()
                               ? **idle
                               : *operations_.emplace_back(std::make_unique<Operation>(*group_, me_));
    operation.begin(name, channel, device);
    return operation;
  }

  // Null for the CPU's. What was posted to a device's stream goes first: it is matched in order.
  static DeviceStream* prepare(Stream& stream) {
    if (auto* device = dynamic_cast<DeviceStream*>(&stream)) {
      device->reserve();
      return device;
    }
    auto* cpu = dynamic_cast<CpuStream*>(&stream);
    if (cpu == nullptr)
      throw InvalidArgument("stream", "is of a kind that ranks as threads do not know",
                            "a CpuStream or a DeviceStream");
    cpu->reserve();
    return nullptr;
  }

  Event post(Operation& operation, Stream& stream) {
    operation.publish();
    if (DeviceStream* device = operation.device()) return device->post(operation);
    return static_cast<CpuStream&>(stream).post(operation);
  }

  World& world() const { return group_->world(); }
  int world_rank() const { return group_->world_rank(me_); }

  std::shared_ptr<Group> group_;
  int me_;
  std::uint64_t splits_ = 0;
  std::vector<std::unique_ptr<Operation>> operations_;  // no fewer than were ever pending at once
};

}  // namespace evenkeel::internal
