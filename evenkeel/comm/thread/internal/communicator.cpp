#include "evenkeel/comm/thread/internal/communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "evenkeel/base/error.h"
#include "evenkeel/comm/thread/internal/world.h"

namespace evenkeel::thread_comm {

namespace {

// Null for the CPU's. What was posted to a device's stream goes first: it is matched in order.
DeviceStream* prepare(Stream& stream) {
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

template <class Value>
constexpr ValueType type_of() {
  return std::is_integral_v<Value> ? ValueType::int64 : ValueType::float64;
}

template <class Value>
Value combined(Value a, Value b, Reduction reduction) {
  switch (reduction) {
    case Reduction::min:
      return std::min(a, b);
    case Reduction::max:
      return std::max(a, b);
    case Reduction::sum:
      break;
  }
  if constexpr (std::is_integral_v<Value>) {
    return static_cast<Value>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));  // wraps
  } else {
    return a + b;
  }
}

// Rank by rank, so that every rank adds in the same order.
template <class Value>
void finish_reduction(Operation& operation) {
  const std::span<const std::byte> gathered = operation.gathered();
  const std::span<std::byte> reduced = operation.reduced;
  if (DeviceStream* device = operation.device()) {
    return device->reduce(gathered.data(), operation.group_size(),
                          static_cast<std::int64_t>(reduced.size() / sizeof(Value)), type_of<Value>(),
                          operation.reduction, reduced.data());
  }
  const auto value_at = [](const std::byte* bytes) {
    Value value;
    std::memcpy(&value, bytes, sizeof value);
    return value;
  };
  for (std::size_t i = 0; i < reduced.size(); i += sizeof(Value)) {
    Value total = value_at(&gathered[i]);
    for (std::size_t at = reduced.size() + i; at < gathered.size(); at += reduced.size()) {
      total = combined(total, value_at(&gathered[at]), operation.reduction);
    }
    std::memcpy(&reduced[i], &total, sizeof total);
  }
}

}  // namespace

// As many operations as a layer has pending at once; who has more makes them when they are first wanted.
ThreadCommunicator::ThreadCommunicator(std::shared_ptr<Group> group, int me)
    : group_(std::move(group)), me_(me) {
  constexpr int kUsual = 4;
  for (int i = 0; i < kUsual; ++i) operations_.push_back(std::make_unique<Operation>(*group_, me_));
}

Event ThreadCommunicator::all_gather(std::span<const std::byte> mine, std::span<std::byte> all,
                                     Stream& stream, const char* name) {
  const auto ranks = static_cast<std::size_t>(size());
  if (all.size() != ranks * mine.size()) {
    throw InvalidArgument("all", fmt::format("has {} bytes in {}", all.size(), name),
                          fmt::format("{} ranks times {} bytes", ranks, mine.size()));
  }
  Operation& operation = begin(name, Channel::collectives, stream);
  for (int peer = 0; peer < size(); ++peer) {
    operation.send(peer, mine);
    operation.receive(peer, all.subspan(static_cast<std::size_t>(peer) * mine.size(), mine.size()));
  }
  return post(operation, stream);
}

Event ThreadCommunicator::send_receive(std::span<const SendSlice> sends,
                                       std::span<const ReceiveSlice> receives, Stream& stream,
                                       const char* name) {
  for (const SendSlice& slice : sends) check_peer("sends", slice.peer);
  for (const ReceiveSlice& slice : receives) check_peer("receives", slice.peer);
  Operation& operation = begin(name, Channel::messages, stream);
  for (const SendSlice& slice : sends) operation.send(slice.peer.value(), slice.bytes);
  for (const ReceiveSlice& slice : receives) operation.receive(slice.peer.value(), slice.bytes);
  return post(operation, stream);
}

Event ThreadCommunicator::all_reduce(std::span<std::int64_t> values, Reduction reduction, Stream& stream,
                                     const char* name) {
  return reduce(values, reduction, stream, name);
}

Event ThreadCommunicator::all_reduce(std::span<double> values, Reduction reduction, Stream& stream,
                                     const char* name) {
  return reduce(values, reduction, stream, name);
}

template <class Value>
Event ThreadCommunicator::reduce(std::span<Value> values, Reduction reduction, Stream& stream,
                                 const char* name) {
  Operation& operation = begin(name, Channel::collectives, stream);
  operation.reduced = std::as_writable_bytes(values);
  operation.reduction = reduction;
  const std::size_t bytes = values.size_bytes();
  const std::span<std::byte> gathered = operation.gather_before(finish_reduction<Value>, bytes);
  for (int peer = 0; peer < size(); ++peer) {
    operation.send(peer, operation.reduced);
    operation.receive(peer, gathered.subspan(static_cast<std::size_t>(peer) * bytes, bytes));
  }
  return post(operation, stream);
}

Event ThreadCommunicator::barrier(Stream& stream, const char* name) {
  Operation& operation = begin(name, Channel::collectives, stream);
  for (int peer = 0; peer < size(); ++peer) operation.meet(peer);
  return post(operation, stream);
}

std::unique_ptr<Communicator> ThreadCommunicator::split(int color) {
  std::vector<int> colors(static_cast<std::size_t>(size()));
  CpuStream stream;
  all_gather(std::as_bytes(std::span(&color, 1)), std::as_writable_bytes(std::span(colors)), stream, "split")
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

void ThreadCommunicator::throw_if_aborted(const char* name) {
  world().check(world_rank(), name);
}

void ThreadCommunicator::abort(const std::string& cause) noexcept {
  world().abort_for(world_rank(), "aborted", cause);
  world().withdraw_all(world_rank());
}

Operation& ThreadCommunicator::begin(const char* name, Channel channel, Stream& stream) {
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

Event ThreadCommunicator::post(Operation& operation, Stream& stream) {
  operation.publish();
  if (DeviceStream* device = operation.device()) return device->post(operation);
  return static_cast<CpuStream&>(stream).post(operation);
}

void ThreadCommunicator::check_peer(const char* argument, RankId peer) const {
  if (peer.value() >= 0 && peer.value() < size()) return;
  throw InvalidArgument(argument, fmt::format("rank {} does not exist", peer.value()),
                        fmt::format("0..{}", size() - 1));
}

}  // namespace evenkeel::thread_comm
