// One posted operation of a thread rank: outgoing messages, incoming messages, and possibly a reduction at
// the end. Collectives consist of messages too: an all_gather sends the same bytes to every rank.
//
// On a DeviceStream the rank threads exchange events instead of bytes. A message carries the event after
// which its bytes are ready; its acknowledgement carries the event after which they have been read. The
// receiver's stream waits for the first event, copies, and records the second, for which the sender's stream
// waits. No thread waits for a device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "evenkeel/base/running_time.h"
#include "evenkeel/comm/communicator.h"
#include "evenkeel/comm/thread/internal/lane.h"
#include "evenkeel/comm/thread/internal/world.h"
#include "evenkeel/device/cpu/stream.h"
#include "evenkeel/device/device_stream.h"

namespace evenkeel::internal {

class Operation final : public CpuOperation {
 public:
  Operation(Group& group, int me);
  ~Operation() override;

  // An operation is filled between begin() and publish(), then posted to a stream. `device` is that stream,
  // or null for a CpuStream.
  void begin(const char* name, Channel channel, DeviceStream* device);
  void send(int to, std::span<const std::byte> bytes);
  void receive(int from, std::span<std::byte> bytes);
  // Exchanges empty messages with `peer`: each side continues after the other's earlier work.
  void exchange_empty(int peer);

  // At the end reduces every rank's values into `values`. Returns the space into which the operation must
  // gather them, in rank order.
  std::span<std::byte> reduce(std::span<std::byte> values, ValueType type, Reduction reduction);
  DeviceStream* device() const { return device_; }

  // Offers everything to the peers. If a peer disagrees on a size, withdraws everything and throws.
  void publish();

  // Takes back messages that no peer has taken, and waits until no peer copies from this operation. Own
  // thread only.
  void withdraw() noexcept;

  bool in_use() const { return in_use_; }
  const char* name() const { return name_; }
  // Adds the peers it still waits for, numbered as in the root. Call with the mailbox of the operation's rank
  // locked.
  void list_absent(std::vector<int>& ranks) const;

 private:
  enum class Sleep : std::uint8_t { for_messages, for_acknowledgements };

  void carry_out() override;
  void cancel() noexcept override;

  // Returns a cause if a peer disagrees with what is published.
  std::optional<Cause> publish_receives();
  std::optional<Cause> publish_message(Message& message);
  static std::optional<Cause> match(Message& message, Receive& receive);
  [[noreturn]] void refuse(Cause cause);

  void wait_until_done();
  bool copy_what_has_come(std::unique_lock<std::mutex>& lock);
  Fifo<Receive> take_arrived();
  void take_over(Receive& receive, EventLease& copied);
  void copy_on_device(const Receive& receive, EventLease& copied);
  static void acknowledge(Message& message, EventLease copied);
  void order_after_readers();
  void finish_reduction();
  void wait_for_readers() noexcept;
  void wake_receivers();
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
  const int me_;    // rank in the group
  const int rank_;  // rank in the root
  const char* name_ = "";
  Channel channel_ = Channel::messages;
  bool in_use_ = false;
  std::vector<Message> sends_;
  std::vector<Receive> receives_;
  std::size_t receive_bytes_ = 0;
  std::span<std::byte> reduced_;  // empty if nothing is reduced
  ValueType value_type_ = ValueType::int64;
  Reduction reduction_ = Reduction::sum;
  std::byte* gathered_ = nullptr;
  std::vector<std::byte> gathered_on_host_;
  DeviceScratch gathered_on_device_;
  DeviceStream* device_ = nullptr;
  EventLease ready_;
  bool withdrawn_ = false;
  bool unfinished_ = false;  // a peer may still need something that was withdrawn
  std::size_t untaken_ = 0;  // receives that this thread has not taken yet
  Clock::time_point start_;
  RunningTime waited_{Clock::duration{}};  // since start_: the time that counts against the deadline

  // Guarded by the mailbox.
  Fifo<Receive> arrived_;
  std::size_t missing_ = 0;  // receives without a message
  std::size_t unacknowledged_ = 0;
  std::size_t wake_at_missing_ = 0;
  Sleep sleep_ = Sleep::for_messages;
};

}  // namespace evenkeel::internal
