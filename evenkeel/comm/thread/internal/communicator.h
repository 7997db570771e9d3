// The communicator of one rank that runs as a thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "evenkeel/base/error.h"
#include "evenkeel/comm/internal/message_communicator.h"
#include "evenkeel/comm/thread/internal/operation.h"
#include "evenkeel/comm/thread/internal/world.h"

namespace evenkeel::internal {

class ThreadCommunicator final : public MessageCommunicator<Group, Operation> {
 public:
  using MessageCommunicator::MessageCommunicator;

  void throw_if_aborted(const char* name) override { world().check(world_rank(), name); }

  void abort(const std::string& cause) noexcept override {
    world().abort_for(world_rank(), "aborted", cause);
    world().withdraw_all(world_rank());
  }

 private:
  Operation& begin(const char* name, Channel channel, Stream& stream) override {
    world().check(world_rank(), name);
    DeviceStream* const device = prepare(stream);
    Operation& operation = idle_operation();
    operation.begin(name, channel, device);
    return operation;
  }

  // Returns null for a CpuStream. On a device stream, earlier operations go first, since they are matched in
  // order.
  static DeviceStream* prepare(Stream& stream) {
    if (auto* device = dynamic_cast<DeviceStream*>(&stream)) {
      device->reserve();
      return device;
    }
    auto* cpu = dynamic_cast<CpuStream*>(&stream);
    if (cpu == nullptr)
      throw InvalidArgument("stream", "is of a kind that thread ranks do not support",
                            "a CpuStream or a DeviceStream");
    cpu->reserve();
    return nullptr;
  }

  Event post(Operation& operation, Stream& stream) override {
    operation.publish();
    if (DeviceStream* device = operation.device()) return device->post(operation);
    return static_cast<CpuStream&>(stream).post(operation);
  }

  std::unique_ptr<Communicator> join(Part part) override {
    for (int& member : part.members) member = group().world_rank(member);
    return std::make_unique<ThreadCommunicator>(world().join(&group(), splits_++, part.color, part.members),
                                                part.me);
  }

  World& world() const { return group().world(); }
  int world_rank() const { return group().world_rank(rank().value()); }

  std::uint64_t splits_ = 0;
};

}  // namespace evenkeel::internal
