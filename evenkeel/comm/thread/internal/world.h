// The state shared by all thread ranks that were started together: a mailbox for each rank, and the cause
// that ended them all.
//
// Locks     Each mailbox has a mutex. A rank locks its own to look for messages or to sleep, and a peer's to
//           leave a message or an acknowledgement there. No thread ever holds two, so there is no lock order.
// Copies    The receiver's thread copies directly from the sender's bytes, outside any lock. It takes a
//           message under its own mailbox before the copy, and acknowledges it under the sender's mailbox
//           after it.
// Withdraw  A rank whose bytes may be freed takes back what nobody has taken yet, and waits for the
//           acknowledgement of the rest. A copy under way always ends, so this needs no deadline.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "evenkeel/comm/internal/cause.h"
#include "evenkeel/comm/thread/internal/lane.h"

namespace evenkeel::internal {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start);

struct alignas(64) Mailbox {
  std::mutex mutex;
  std::condition_variable wakeup;

  // Guarded by `mutex`.
  Operation* awaited = nullptr;     // the operation that the rank sleeps in
  bool asked_to_copy = false;       // a peer sleeps until this rank copies other messages
  const char* last_name = nullptr;  // name of its latest operation
  std::uint64_t posted = 0;
  Clock::time_point last_time;

  // Touched by the rank's own thread alone.
  std::vector<Operation*> pending;        // on all its communicators
  const char* left_unfinished = nullptr;  // dropped operation that a peer could still need
};

class World {
 public:
  World(int ranks, double deadline_seconds);

  int size() const { return static_cast<int>(mailboxes_.size()); }
  double deadline_seconds() const { return deadline_seconds_; }
  Mailbox& mailbox(int rank) { return mailboxes_[static_cast<std::size_t>(rank)]; }
  std::shared_ptr<Group> root_group();

  // Stops all ranks and wakes all sleepers. The first cause is kept.
  void abort(Cause cause) noexcept;
  // The cause reads "rank 2 failed: out of tokens".
  void abort_for(int rank, const char* action, std::string_view why) noexcept;
  bool aborted() const noexcept { return aborted_.load(std::memory_order_acquire); }
  Cause cause() const;

  // The following are for the rank's own thread. Called at the start of every call: throws if the ranks have
  // stopped.
  void check(int rank, const char* operation);
  // Withdraws everything, then throws the cause.
  [[noreturn]] void stop(int rank, const char* operation, double after_seconds);
  // After this, nobody reads any bytes that `rank` has sent.
  void withdraw_all(int rank) noexcept;

  // The rank will issue nothing more.
  void leave(int rank) noexcept;
  bool anyone_left() const { return left_count_.load(std::memory_order_acquire) > 0; }
  bool has_left(int rank) const {
    return left_[static_cast<std::size_t>(rank)].load(std::memory_order_acquire);
  }

  // Returns the group that the split_count-th split of `parent` makes for `color`. Each member calls this
  // once.
  std::shared_ptr<Group> join(const Group* parent, std::uint64_t split_count, int color,
                              const std::vector<int>& members);

 private:
  using SplitKey = std::tuple<const Group*, std::uint64_t, int>;
  struct Split {
    std::shared_ptr<Group> group;
    int missing = 0;
  };

  void wake_all() noexcept;

  double deadline_seconds_;
  std::vector<Mailbox> mailboxes_;
  std::vector<std::atomic<bool>> left_;
  std::atomic<int> left_count_{0};
  std::atomic<bool> aborted_{false};
  mutable std::mutex mutex_;  // guards the members below
  Cause cause_;
  std::map<SplitKey, Split> splits_;
};

}  // namespace evenkeel::internal
