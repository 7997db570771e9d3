// How a rank waits for an operation: it copies what has arrived, for any of its pending operations, then
// sleeps.
#include <algorithm>
#include <cstring>
#include <exception>
#include <utility>

#include "evenkeel/comm/internal/culprit.h"
#include "evenkeel/comm/thread/internal/operation.h"

namespace evenkeel::internal {

namespace {

// Above this size a receiver copies what has arrived while the rest is under way. Below it, a single wake-up
// for all messages costs less than the overlap gains.
constexpr std::size_t overlap_bytes = 256 << 10;

Clock::duration deadline(const World& world) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(world.deadline_seconds()));
}

// How long a rank sleeps before it looks at the clock.
Clock::duration nap(const World& world) {
  return std::max<Clock::duration>(deadline(world) / 16, std::chrono::microseconds(1));
}

// Answers find_culprit(). Each mailbox is read under its lock, while the rank that reads is marked as
// waiting.
class MailboxGraph final : public WaitGraph {
 public:
  explicit MailboxGraph(World& world) : world_(world) {}
  int size() const override { return world_.size(); }
  bool list_awaited(int rank, std::vector<int>& ranks) const override {
    Mailbox& mailbox = world_.mailbox(rank);
    const std::lock_guard lock(mailbox.mutex);
    if (mailbox.awaited == nullptr) return false;
    mailbox.awaited->list_absent(ranks);
    return true;
  }
  bool has_left(int rank) const override { return world_.has_left(rank); }
  std::string last_message(int rank) const override {
    Mailbox& mailbox = world_.mailbox(rank);
    const std::lock_guard lock(mailbox.mutex);
    return describe_last(rank, mailbox.last_name,
                         mailbox.last_name == nullptr ? 0 : seconds_since(mailbox.last_time), mailbox.posted);
  }

 private:
  World& world_;
};

}  // namespace

void Operation::carry_out() {
  start_ = Clock::now();
  waited_ = RunningTime(2 * nap(group_.world()));
  wait_until_done();
  order_after_readers();
  retire();
  if (!reduced_.empty()) finish_reduction();
}

void Operation::wait_until_done() {
  bool has_woken_receivers = false;
  std::unique_lock lock(mailbox().mutex);
  for (;;) {
    if (group_.world().aborted()) {
      lock.unlock();
      fail();
    }
    // Copies for later operations too: peers that wait for them need not wait until this one is done.
    if (copy_what_has_come(lock)) continue;
    if (untaken_ == 0 && unacknowledged_ == 0) return;
    if (untaken_ == 0 && !std::exchange(has_woken_receivers, true)) {
      lock.unlock();
      wake_receivers();
      lock.lock();
      continue;
    }
    sleep(lock);
  }
}

// Copies for every pending operation of the rank, this one first. So ranks may wait for operations in
// different orders without blocking each other's bytes.
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

// A message to oneself needs no event: one stream orders it.
void Operation::copy_on_device(const Receive& receive, EventLease& copied) {
  const Message& message = *receive.message;
  const bool from_elsewhere = message.operation->device_ != device_;
  if (from_elsewhere) device_->enqueue_wait(*message.ready);
  if (message.bytes.data() != receive.bytes.data())
    device_->copy(receive.bytes.data(), message.bytes.data(), message.bytes.size());
  if (from_elsewhere) copied = device_->record();
}

// Later work on this rank's stream may overwrite the bytes that were sent, so the stream waits for their
// readers.
void Operation::order_after_readers() {
  if (device_ == nullptr) return;
  for (Message& message : sends_) {
    if (message.copied) device_->enqueue_wait(*message.copied);
    message.copied = EventLease();
  }
  ready_ = EventLease();
}

Fifo<Receive> Operation::take_arrived() {
  for (Receive* receive = arrived_.first(); receive != nullptr; receive = receive->next) {
    receive->place = receive->message->place = Place::taken;
    --untaken_;
  }
  return std::exchange(arrived_, {});
}

// From here on the message belongs to its sender again, which may free it.
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

// Wakes receivers that sleep for another operation although a message of this one is ready for them.
void Operation::wake_receivers() {
  for (const Message& message : sends_) {
    Mailbox& theirs = group_.world().mailbox(group_.world_rank(message.to));
    {
      const std::lock_guard lock(theirs.mutex);
      if (message.place != Place::arrived || theirs.awaited == nullptr) continue;
      theirs.asked_to_copy = true;
    }
    theirs.wakeup.notify_one();
  }
}

// Sleeps until `wakes` is true or the deadline has passed. Sleeps in short naps, each counted as at most
// twice its length: a process that was stopped and continued must not blame a rank that could not run.
template <class Wakes>
void Operation::sleep_until(std::unique_lock<std::mutex>& lock, const Wakes& wakes) {
  const World& world = group_.world();
  for (;;) {
    const Clock::duration left = deadline(world) - waited_.look();
    const bool woken = mailbox().wakeup.wait_for(lock, std::min(left, nap(world)), wakes);
    if (woken || waited_.look() >= deadline(world)) return;
  }
}

// Sleeps until half of the missing messages have arrived, so a rank with P peers wakes up log P times, not P.
void Operation::sleep(std::unique_lock<std::mutex>& lock) {
  const World& world = group_.world();
  sleep_ = untaken_ > 0 ? Sleep::for_messages : Sleep::for_acknowledgements;
  wake_at_missing_ = receive_bytes_ >= overlap_bytes ? missing_ / 2 : 0;
  mailbox().asked_to_copy = false;
  mailbox().awaited = this;
  sleep_until(lock, [&] {
    return may_go_on() || mailbox().asked_to_copy || world.aborted() || awaits_one_who_left();
  });
  if (world.aborted() || !(may_go_on() || mailbox().asked_to_copy)) {
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

// The mailbox names this operation as awaited during the search for the culprit. Otherwise a peer whose
// deadline passes at the same moment would take this rank for one that is not waiting.
void Operation::fail() {
  World& world = group_.world();
  const double seconds = seconds_since(start_);
  if (!world.aborted())
    world.abort(find_culprit(MailboxGraph(world), rank_, name_, world.deadline_seconds()));
  {
    const std::lock_guard lock(mailbox().mutex);
    mailbox().awaited = nullptr;
  }
  world.stop(rank_, name_, seconds);
}

}  // namespace evenkeel::internal
