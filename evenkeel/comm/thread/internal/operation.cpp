#include "evenkeel/comm/thread/internal/operation.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <utility>

namespace evenkeel::internal {

Operation::Operation(Group& group, int me) : group_(group), me_(me), rank_(group.world_rank(me)) {
  // Operations are reused in turn. Reserving now keeps one that is rarely large from allocating late.
  const std::size_t usual = 64 + 2 * static_cast<std::size_t>(group.size());
  sends_.reserve(usual);
  receives_.reserve(usual);
}

Operation::~Operation() {
  if (in_use_) cancel();
}

void Operation::begin(const char* name, Channel channel, DeviceStream* device) {
  name_ = name;
  channel_ = channel;
  device_ = device;
  sends_.clear();
  receives_.clear();
  receive_bytes_ = 0;
  reduced_ = {};
}

void Operation::send(int to, std::span<const std::byte> bytes) {
  if (!bytes.empty()) sends_.push_back({.bytes = bytes, .to = to, .operation = this});
}

void Operation::receive(int from, std::span<std::byte> bytes) {
  if (bytes.empty()) return;
  receives_.push_back({.bytes = bytes, .from = from, .operation = this});
  receive_bytes_ += bytes.size();
}

void Operation::exchange_empty(int peer) {
  sends_.push_back({.to = peer, .operation = this});
  receives_.push_back({.from = peer, .operation = this});
}

std::span<std::byte> Operation::reduce(std::span<std::byte> values, ValueType type, Reduction reduction) {
  reduced_ = values;
  value_type_ = type;
  reduction_ = reduction;
  const std::size_t bytes = values.size() * static_cast<std::size_t>(group_.size());
  if (device_ == nullptr) gathered_on_host_.resize(bytes);
  gathered_ = device_ == nullptr ? gathered_on_host_.data() : gathered_on_device_.lend(*device_, bytes);
  return {gathered_, bytes};
}

void Operation::finish_reduction() {
  const auto n = static_cast<std::int64_t>(reduced_.size() / sizeof(std::int64_t));
  if (device_ == nullptr)
    return reduce_on_host(gathered_, group_.size(), n, value_type_, reduction_, reduced_.data());
  device_->reduce(gathered_, group_.size(), n, value_type_, reduction_, reduced_.data());
  gathered_on_device_.give_back(*device_);
}

void Operation::publish() {
  if (device_ != nullptr && !sends_.empty()) {
    ready_ = device_->record();
    for (Message& message : sends_) message.ready = ready_.get();
  }
  mailbox().pending.push_back(this);
  in_use_ = true;
  withdrawn_ = false;
  std::optional<Cause> clash = publish_receives();
  for (auto message = sends_.begin(); !clash && message != sends_.end(); ++message)
    clash = publish_message(*message);
  if (clash) refuse(std::move(*clash));
}

std::optional<Cause> Operation::publish_receives() {
  const std::lock_guard lock(mailbox().mutex);
  mailbox().last_name = name_;
  mailbox().last_time = Clock::now();
  ++mailbox().posted;
  missing_ = untaken_ = receives_.size();
  unacknowledged_ = sends_.size();
  for (Receive& receive : receives_) {
    Lane& lane = group_.lane(channel_, receive.from, me_);
    if (lane.messages.empty()) {
      lane.receives.push(receive);
      receive.place = Place::lane;
    } else if (auto clash = match(lane.messages.pop(), receive)) {
      return clash;
    }
  }
  return std::nullopt;
}

std::optional<Cause> Operation::publish_message(Message& message) {
  Mailbox& theirs = group_.world().mailbox(group_.world_rank(message.to));
  bool wake = false;
  {
    const std::lock_guard lock(theirs.mutex);
    Lane& lane = group_.lane(channel_, me_, message.to);
    if (lane.receives.empty()) {
      lane.messages.push(message);
      message.place = Place::lane;
      return std::nullopt;
    }
    Receive& receive = lane.receives.pop();
    if (auto clash = match(message, receive)) return clash;
    const Operation& receiver = *receive.operation;
    wake = theirs.awaited == &receiver && receiver.may_go_on();
  }
  if (wake) theirs.wakeup.notify_one();
  return std::nullopt;
}

// Call with the receiver's mailbox locked.
std::optional<Cause> Operation::match(Message& message, Receive& receive) {
  Operation& receiver = *receive.operation;
  const Operation& sender = *message.operation;
  const bool of_streams = (sender.device_ == nullptr) != (receiver.device_ == nullptr);
  if (of_streams || message.bytes.size() != receive.bytes.size()) {
    message.place = receive.place = Place::nowhere;
    return Cause{
        sender.rank_, receiver.rank_, -1,
        of_streams
            ? fmt::format("ranks {} and {} use different kinds of streams in {} and {}: one a device stream, "
                          "the other a CPU stream",
                          sender.rank_, receiver.rank_, sender.name_, receiver.name_)
            : fmt::format("rank {} sends {} bytes in {}, where rank {} expects {} bytes in {}", sender.rank_,
                          message.bytes.size(), sender.name_, receiver.rank_, receive.bytes.size(),
                          receiver.name_)};
  }
  message.receive = &receive;
  receive.message = &message;
  message.place = receive.place = Place::arrived;
  receiver.arrived_.push(receive);
  --receiver.missing_;
  return std::nullopt;
}

void Operation::refuse(Cause cause) {
  cause.found_by = rank_;
  group_.world().abort(std::move(cause));
  cancel();
  group_.world().stop(rank_, name_, 0);
}

void Operation::withdraw() noexcept {
  if (std::exchange(withdrawn_, true)) return;
  std::size_t taken_back = 0;
  for (Message& message : sends_) taken_back += take_back(message) ? 1 : 0;
  std::unique_lock lock(mailbox().mutex);
  unfinished_ = taken_back > 0;
  unacknowledged_ -= taken_back;
  sleep_ = Sleep::for_acknowledgements;
  mailbox().awaited = this;
  mailbox().wakeup.wait(lock, [this] { return unacknowledged_ == 0; });
  mailbox().awaited = nullptr;
  lock.unlock();
  if (device_ != nullptr) wait_for_readers();
}

// Blocks the host, since the bytes may be freed next. A device that has failed reads nothing more.
void Operation::wait_for_readers() noexcept {
  for (Message& message : sends_) {
    if (!message.copied) continue;
    try {
      device_->host_wait(*message.copied);
    } catch (const std::exception&) {
      continue;
    }
  }
}

bool Operation::take_back(Message& message) noexcept {
  const std::lock_guard lock(group_.world().mailbox(group_.world_rank(message.to)).mutex);
  if (message.place == Place::taken) return false;
  if (message.place == Place::lane) group_.lane(channel_, me_, message.to).messages.remove(message);
  if (message.place == Place::arrived) {
    Receive& receive = *message.receive;
    receive.operation->arrived_.remove(receive);
    ++receive.operation->missing_;
    receive.place = Place::nowhere;
  }
  message.place = Place::nowhere;
  return true;
}

void Operation::cancel() noexcept {
  withdraw();
  {
    const std::lock_guard lock(mailbox().mutex);
    for (Receive& receive : receives_) {
      if (receive.place == Place::taken) continue;
      unfinished_ = true;
      if (receive.place == Place::lane) group_.lane(channel_, receive.from, me_).receives.remove(receive);
      if (receive.place == Place::arrived) receive.message->place = Place::nowhere;
    }
    arrived_ = {};
  }
  if (unfinished_) mailbox().left_unfinished = name_;
  retire();
}

void Operation::retire() noexcept {
  std::vector<Operation*>& pending = mailbox().pending;
  *std::find(pending.begin(), pending.end(), this) = pending.back();
  pending.pop_back();
  in_use_ = false;
}

}  // namespace evenkeel::internal
