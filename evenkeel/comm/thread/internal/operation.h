// One posted operation of a thread rank: messages out, messages in, and at the end perhaps a reduction.
// Collectives are made of messages as well: an all_gather sends the same bytes to every rank.
//
// On a DeviceStream the ranks' threads tell each other events instead of bytes: a message says what its bytes
// are ready after, and its acknowledgement what they were read before. The receiver's stream waits for the
// first, copies, and records the second, for which the sender's stream waits. No thread waits for a device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "evenkeel/base/running_time.h"
#include "evenkeel/comm/communicator.h"
#include "evenkeel/comm/thread/internal/lane.h"
#include "evenkeel/comm/thread/internal/world.h"
#include "evenkeel/device/cpu/stream.h"
#include "evenkeel/device/device_stream.h"

namespace evenkeel::thread_comm {

class Operation final : public CpuOperation {
 public:
  Operation(Group& group, int me);
  ~Operation() override;

  // Filled between begin() and publish(), then posted to a stream. `device` is that stream where it is a
  // device's.
  void begin(const char* name, Channel channel, DeviceStream* device);
  void send(int to, std::span<const std::byte> bytes);
  void receive(int from, std::span<std::byte> bytes);
  // A message both ways without bytes: each comes after what the other did before.
  void meet(int peer);

  // Where every rank's bytes are gathered before `finish` is called with this operation.
  using Finish = void (*)(Operation&);
  std::span<std::byte> gather_before(Finish finish, std::size_t bytes_per_rank);
  std::span<const std::byte> gathered() const { return gathered_; }
  DeviceStream* device() const { return device_; }
  int group_size() const { return group_.size(); }

  // Offers everything to the peers. Throws, with everything withdrawn, if a peer disagrees on a size.
  void publish();

  // Takes back what no peer has taken, and waits until no peer copies from this operation. Own thread only.
  void withdraw() noexcept;

  bool in_use() const { return in_use_; }
  const char* name() const { return name_; }
  // Under the mailbox of the operation's rank: the peers it still waits for, by their rank in the root.
  void list_absent(std::vector<int>& ranks) const;

  // For whoever posts all_reduce: what finish() works on.
  std::span<std::byte> reduced;
  Reduction reduction = Reduction::sum;

 private:
  enum class Sleep : std::uint8_t { for_messages, for_acknowledgements };
  struct Clash;

  void carry_out() override;
  void cancel() noexcept override;

  void publish_receives(Clash& clash);
  void publish_message(Message& message, Clash& clash);
  static bool match(Message& message, Receive& receive, Clash& clash);
  [[noreturn]] void refuse(const Clash& clash);

  void wait_until_done();
  bool copy_what_has_come(std::unique_lock<std::mutex>& lock);
  Fifo<Receive> take_arrived();
  void take_over(Receive& receive, EventLease& copied);
  void copy_on_device(const Receive& receive, EventLease& copied);
  static void acknowledge(Message& message, EventLease copied);
  void order_after_readers();
  void wait_for_readers() noexcept;
  void urge_receivers();
  void sleep(std::unique_lock<std::mutex>& lock);
  template <class Wakes>
  void sleep_until(std::unique_lock<std::mutex>& lock, const Wakes& wakes);
  bool may_go_on() const;
  static bool is_absent(const Receive& receive);
  bool awaits_one_who_left() const;
  [[noreturn]] void fail();
  bool take_back(Message& message) noexcept;
  void retire() noexcept;

  Mailbox& mailbox() { return group_.world().mailbox(rank_); }

  Group& group_;
  const int me_;    // in the group
  const int rank_;  // in the root
  const char* name_ = "";
  Channel channel_ = Channel::messages;
  bool in_use_ = false;
  std::vector<Message> sends_;
  std::vector<Receive> receives_;
  std::size_t receive_bytes_ = 0;
  Finish finish_ = nullptr;
  std::span<std::byte> gathered_;
  std::vector<std::byte> gathered_on_host_;
  std::unique_ptr<DeviceScratch> gathered_on_device_;
  EventLease gathered_is_idle_;  // whichever stream has it next
  DeviceStream* device_ = nullptr;
  EventLease ready_;
  bool withdrawn_ = false;
  bool unfinished_ = false;  // a peer may still need what was withdrawn
  std::size_t untaken_ = 0;  // receives that this thread has yet to take
  Clock::time_point start_;
  RunningTime waited_{Clock::duration{}};  // since then: what counts against the deadline

  // Guarded by the mailbox.
  Fifo<Receive> arrived_;
  std::size_t missing_ = 0;  // receives without a message
  std::size_t unacknowledged_ = 0;
  std::size_t wake_at_missing_ = 0;
  Sleep sleep_ = Sleep::for_messages;
};

// Who keeps `operation` waiting, and what to say about it. Called asleep, by the operation's own thread.
Cause find_blame(World& world, int rank, const Operation& operation);

}  // namespace evenkeel::thread_comm
