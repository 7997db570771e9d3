#include "evenkeel/comm/thread/internal/operation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <string>
#include <utility>

namespace evenkeel::thread_comm {

namespace {

// Above this, a receiver copies what has come while the rest is under way; below, one wake-up for all
// messages costs less than the overlap gains.
constexpr std::size_t overlap_bytes = 256 << 10;

Clock::duration deadline(const World& world) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(world.deadline_seconds()));
}

// As long as a rank sleeps before it looks at the clock.
Clock::duration nap(const World& world) {
  return std::max<Clock::duration>(deadline(world) / 16, std::chrono::microseconds(1));
}

}  // namespace

struct Operation::Clash {
  bool found = false;
  int from = 0;
  int to = 0;
  std::size_t sent = 0;
  std::size_t expected = 0;
  const char* send_name = "";
  const char* receive_name = "";
  bool of_streams = false;  // one side is on a device, the other is not
};

Operation::Operation(Group& group, int me) : group_(group), me_(me), rank_(group.world_rank(me)) {
  // Operations are used in turn: with space from the start, a rarely large one does not allocate late.
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
  finish_ = nullptr;
}

void Operation::send(int to, std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  sends_.emplace_back();
  sends_.back().bytes = bytes;
  sends_.back().to = to;
  sends_.back().operation = this;
}

void Operation::receive(int from, std::span<std::byte> bytes) {
  if (bytes.empty()) return;
  receives_.emplace_back();
  receives_.back().bytes = bytes;
  receives_.back().from = from;
  receives_.back().operation = this;
  receive_bytes_ += bytes.size();
}

void Operation::meet(int peer) {
  sends_.emplace_back();
  sends_.back().to = peer;
  sends_.back().operation = this;
  receives_.emplace_back();
  receives_.back().from = peer;
  receives_.back().operation = this;
}

std::span<std::byte> Operation::gather_before(Finish finish, std::size_t bytes_per_rank) {
  finish_ = finish;
  const std::size_t bytes = bytes_per_rank * static_cast<std::size_t>(group_.size());
  if (device_ == nullptr) {
    gathered_on_host_.resize(bytes);
    gathered_ = gathered_on_host_;
    return gathered_;
  }
  if (gathered_is_idle_) device_->enqueue_wait(*gathered_is_idle_);
  if (gathered_on_device_ == nullptr || gathered_on_device_->bytes() < bytes)
    gathered_on_device_ = device_->make_scratch(bytes);
  gathered_ = {gathered_on_device_->data(), bytes};
  return gathered_;
}

void Operation::publish() {
  if (device_ != nullptr && !sends_.empty()) {
    ready_ = device_->record();
    for (Message& message : sends_) message.ready = ready_.get();
  }
  mailbox().pending.push_back(this);
  in_use_ = true;
  withdrawn_ = false;
  Clash clash;
  publish_receives(clash);
  for (Message& message : sends_) {
    if (clash.found) break;
    publish_message(message, clash);
  }
  if (clash.found) refuse(clash);
}

void Operation::publish_receives(Clash& clash) {
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
    } else if (!match(lane.messages.pop(), receive, clash)) {
      return;
    }
  }
}

void Operation::publish_message(Message& message, Clash& clash) {
  Mailbox& theirs = group_.world().mailbox(group_.world_rank(message.to));
  bool wake = false;
  {
    const std::lock_guard lock(theirs.mutex);
    Lane& lane = group_.lane(channel_, me_, message.to);
    if (lane.receives.empty()) {
      lane.messages.push(message);
      message.place = Place::lane;
      return;
    }
    Receive& receive = lane.receives.pop();
    if (!match(message, receive, clash)) return;
    const Operation& receiver = *receive.operation;
    wake = theirs.awaited == &receiver && receiver.may_go_on();
  }
  if (wake) theirs.wakeup.notify_one();
}

// Under the receiver's mailbox.
bool Operation::match(Message& message, Receive& receive, Clash& clash) {
  Operation& receiver = *receive.operation;
  const Operation& sender = *message.operation;
  const bool of_streams = (sender.device_ == nullptr) != (receiver.device_ == nullptr);
  if (of_streams || message.bytes.size() != receive.bytes.size()) {
    message.place = receive.place = Place::nowhere;
    clash = {true,         sender.rank_,   receiver.rank_, message.bytes.size(), receive.bytes.size(),
             sender.name_, receiver.name_, of_streams};
    return false;
  }
  message.receive = &receive;
  receive.message = &message;
  message.place = receive.place = Place::arrived;
  receiver.arrived_.push(receive);
  --receiver.missing_;
  return true;
}

void Operation::refuse(const Clash& clash) {
  const std::string why =
      clash.of_streams
          ? fmt::format(
                "of ranks {} and {}, one sends and receives in {} on a device's stream, the other in {} on "
                "the "
                "CPU's",
                clash.from, clash.to, clash.send_name, clash.receive_name)
          : fmt::format("rank {} sends {} bytes in {}, where rank {} expects {} bytes in {}", clash.from,
                        clash.sent, clash.send_name, clash.to, clash.expected, clash.receive_name);
  group_.world().abort({clash.from, clash.to, rank_, why});
  cancel();
  group_.world().stop(rank_, name_, 0);
}

void Operation::carry_out() {
  start_ = Clock::now();
  waited_ = RunningTime(2 * nap(group_.world()));
  wait_until_done();
  order_after_readers();
  retire();
  if (finish_ == nullptr) return;
  finish_(*this);
  if (device_ != nullptr) gathered_is_idle_ = device_->record();
}

void Operation::wait_until_done() {
  bool has_urged = false;
  std::unique_lock lock(mailbox().mutex);
  for (;;) {
    if (group_.world().aborted()) {
      lock.unlock();
      fail();
    }
    // Others that wait for what this rank takes later need not wait until then.
    if (copy_what_has_come(lock)) continue;
    if (untaken_ == 0 && unacknowledged_ == 0) return;
    if (untaken_ == 0 && !std::exchange(has_urged, true)) {
      lock.unlock();
      urge_receivers();
      lock.lock();
      continue;
    }
    sleep(lock);
  }
}

// Serves every pending operation of the rank, this one first: whatever two ranks wait for, in whichever
// order, neither keeps the other's bytes from moving.
bool Operation::copy_what_has_come(std::unique_lock<std::mutex>& lock) {
  Operation* served = this;
  if (arrived_.empty()) {
    const std::vector<Operation*>& pending = mailbox().pending;
    const auto found = std::find_if(pending.begin(), pending.end(),
                                    [](const Operation* each) { return !each->arrived_.empty(); });
    if (found == pending.end()) return false;
    served = *found;
  }
  Fifo<Receive> taken = served->take_arrived();
  lock.unlock();
  std::exception_ptr failure;
  while (!taken.empty()) {
    Receive& receive = taken.pop();
    EventLease copied;
    try {
      if (failure == nullptr) served->take_over(receive, copied);
    } catch (const std::exception& error) {
      failure = std::current_exception();
      group_.world().abort_for(rank_, "failed", error.what());
    }
    acknowledge(*receive.message, std::move(copied));
  }
  if (failure != nullptr) std::rethrow_exception(failure);
  lock.lock();
  return true;
}

void Operation::take_over(Receive& receive, EventLease& copied) {
  const Message& message = *receive.message;
  if (device_ != nullptr) return copy_on_device(receive, copied);
  if (message.bytes.data() != receive.bytes.data()) {
    std::memcpy(receive.bytes.data(), message.bytes.data(), receive.bytes.size());
  }
}

// A message to oneself is in the order of the one stream.
void Operation::copy_on_device(const Receive& receive, EventLease& copied) {
  const Message& message = *receive.message;
  const bool from_elsewhere = message.operation->device_ != device_;
  if (from_elsewhere) device_->enqueue_wait(*message.ready);
  if (message.bytes.data() != receive.bytes.data())
    device_->copy(receive.bytes.data(), message.bytes.data(), message.bytes.size());
  if (from_elsewhere) copied = device_->record();
}

// The next work on this rank's stream may overwrite the bytes that were sent, so it waits for their readers.
void Operation::order_after_readers() {
  if (device_ == nullptr) return;
  for (Message& message : sends_) {
    if (message.copied) device_->enqueue_wait(*message.copied);
    message.copied.release();
  }
  ready_.release();
}

Fifo<Receive> Operation::take_arrived() {
  for (Receive* receive = arrived_.first(); receive != nullptr; receive = receive->next) {
    receive->place = receive->message->place = Place::taken;
    --untaken_;
  }
  return std::exchange(arrived_, {});
}

// The message belongs to its sender again, and may be gone, from here on.
void Operation::acknowledge(Message& message, EventLease copied) {
  Operation& sender = *message.operation;
  Mailbox& theirs = sender.mailbox();
  bool wake = false;
  {
    const std::lock_guard lock(theirs.mutex);
    message.acknowledged = true;
    message.copied = std::move(copied);
    --sender.unacknowledged_;
    wake = theirs.awaited == &sender && sender.may_go_on();
  }
  if (wake) theirs.wakeup.notify_one();
}

// Wakes receivers that sleep on other news although a message of this operation lies ready for them.
void Operation::urge_receivers() {
  for (const Message& message : sends_) {
    Mailbox& theirs = group_.world().mailbox(group_.world_rank(message.to));
    {
      const std::lock_guard lock(theirs.mutex);
      if (message.place != Place::arrived || theirs.awaited == nullptr) continue;
      theirs.urged = true;
    }
    theirs.wakeup.notify_one();
  }
}

// Or until the deadline. A rank sleeps in naps, of which each counts as twice its length at most: a process
// that was stopped, and goes on, must not blame a rank that could not run.
template <class Wakes>
void Operation::sleep_until(std::unique_lock<std::mutex>& lock, const Wakes& wakes) {
  const World& world = group_.world();
  for (;;) {
    const Clock::duration left = deadline(world) - waited_.look();
    const bool woken = mailbox().wakeup.wait_for(lock, std::min(left, nap(world)), wakes);
    if (woken || waited_.look() >= deadline(world)) return;
  }
}

// Until half of what is missing has come, so that a rank with P peers wakes up log P times rather than P.
void Operation::sleep(std::unique_lock<std::mutex>& lock) {
  const World& world = group_.world();
  sleep_ = untaken_ > 0 ? Sleep::for_messages : Sleep::for_acknowledgements;
  wake_at_missing_ = receive_bytes_ >= overlap_bytes ? missing_ / 2 : 0;
  mailbox().urged = false;
  mailbox().awaited = this;
  sleep_until(lock,
              [&] { return may_go_on() || mailbox().urged || world.aborted() || awaits_one_who_left(); });
  if (world.aborted() || !(may_go_on() || mailbox().urged)) {
    lock.unlock();
    fail();
  }
  mailbox().awaited = nullptr;
}

bool Operation::may_go_on() const {
  return sleep_ == Sleep::for_messages ? missing_ <= wake_at_missing_ : unacknowledged_ == 0;
}

bool Operation::awaits_one_who_left() const {
  const World& world = group_.world();
  if (!world.anyone_left()) return false;
  const auto left = [&](int member) { return world.has_left(group_.world_rank(member)); };
  return std::any_of(receives_.begin(), receives_.end(),
                     [&](const Receive& receive) { return is_absent(receive) && left(receive.from); }) ||
         std::any_of(sends_.begin(), sends_.end(),
                     [&](const Message& message) { return !message.acknowledged && left(message.to); });
}

bool Operation::is_absent(const Receive& receive) {
  return receive.place == Place::lane || receive.place == Place::nowhere;
}

void Operation::list_absent(std::vector<int>& ranks) const {
  for (const Receive& receive : receives_) {
    if (is_absent(receive)) ranks.push_back(group_.world_rank(receive.from));
  }
  for (const Message& message : sends_) {
    if (!message.acknowledged) ranks.push_back(group_.world_rank(message.to));
  }
}

// The mailbox still names this operation as awaited while the blame is sought, so that a peer whose time runs
// out at the same moment does not take this rank for one that is silent.
void Operation::fail() {
  World& world = group_.world();
  const double seconds = seconds_since(start_);
  if (!world.aborted()) world.abort(find_blame(world, rank_, *this));
  {
    const std::lock_guard lock(mailbox().mutex);
    mailbox().awaited = nullptr;
  }
  world.stop(rank_, name_, seconds);
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

// On the host: the bytes may be gone next. A device that has failed reads nothing more.
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

}  // namespace evenkeel::thread_comm
