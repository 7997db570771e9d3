// A stream whose work runs asynchronously on a device: the host submits work and continues.
//
// Order     Submitted work runs in order. mark() returns an event for the work so far. wait_for() holds later
//           work back until another stream has reached its event. Neither blocks the host on the device.
// Posted    A communicator's operations first wait for other ranks' threads. post() only queues them on the
//           host; flush() carries them out on the rank's own thread. Everything that submits work calls
//           flush() first, so work submitted after post() runs after the posted operation. Until then the
//           host does not block.
// Peers     Device events pass between threads: one thread records an event, other threads' streams wait for
//           it.
// Errors    If a posted operation fails, the call that flushes it throws. Operations posted after it are
//           cancelled. Waiting for the Event of a failed or cancelled operation throws each time, as on a
//           CpuStream.
// Watches   Some work ends only if other ranks do their part on their devices. The code that submits such
//           work attaches a StreamWatch. A thread that waits for the work then checks from time to time
//           whether the work can still end.
// Threads   A stream belongs to one thread. Any thread may use an event that it holds.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "evenkeel/device/cpu/stream.h"
#include "evenkeel/device/reduction.h"
#include "evenkeel/device/stream.h"

namespace evenkeel {

// Marks a point in a device's work once it is recorded.
class DeviceEvent {
 public:
  virtual ~DeviceEvent() = default;
};

// Reuses events: a new one is made only while all existing ones are in use.
class EventPool {
 public:
  std::unique_ptr<DeviceEvent> take();  // null if none is idle
  void put(std::unique_ptr<DeviceEvent> event) noexcept;

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<DeviceEvent>> idle_;
};

// An event in use. Its holder returns it to the pool by assigning EventLease(), once every wait for the event
// is enqueued.
struct ReturnToPool {
  std::shared_ptr<EventPool> pool;
  void operator()(DeviceEvent* event) const noexcept { pool->put(std::unique_ptr<DeviceEvent>(event)); }
};
using EventLease = std::unique_ptr<DeviceEvent, ReturnToPool>;

// Checks whether a stream's work can still end.
class StreamWatch {
 public:
  virtual ~StreamWatch() = default;
  // Called by the waiting thread, `waited_seconds` after its wait began. Throws if the work can no longer
  // end.
  virtual void check(double waited_seconds) = 0;
};

class DeviceStream : public Stream {
 public:
  ~DeviceStream() override;
  DeviceStream(const DeviceStream&) = delete;
  DeviceStream& operator=(const DeviceStream&) = delete;

  // Returns an event for all work up to now.
  Event mark();
  // Makes later work of this stream run after `event`. The device waits if the event's stream is a
  // DeviceStream (which must belong to this thread); otherwise the host waits.
  void wait_for(const Event& event);

  // For communicators. A posted operation submits its work in carry_out(). reserve() flushes and makes space
  // for one more operation, so that the next post() does not throw.
  void reserve();
  Event post(CpuOperation& operation);
  void flush() { flush_to(posted_); }

  // For carry_out() and for wrappers of kernels. These submit work without a flush.
  virtual void copy(void* to, const void* from, std::size_t bytes) = 0;
  // reduced[i] combines values[i], values[n + i], ... of all `parts`, in this order.
  virtual void reduce(const void* values, int parts, std::int64_t n, ValueType type, Reduction reduction,
                      void* reduced) = 0;
  // Allocates device memory.
  virtual std::shared_ptr<std::byte> make_scratch(std::size_t bytes) = 0;
  EventLease record();
  virtual void enqueue_wait(const DeviceEvent& event) = 0;
  virtual void host_wait(const DeviceEvent& event) = 0;

  // From now on every host wait calls watch->check(), as long as the watch lives.
  void watch(const std::shared_ptr<StreamWatch>& watch);

  // Positions count operations and marks.
  void wait(std::uint64_t position) override;
  bool complete(std::uint64_t position) const override;
  void synchronize() override;

 protected:
  DeviceStream();
  // Destructors of derived streams call this. Cancels operations that are only posted, and waits for
  // submitted work that can still end.
  void abandon() noexcept;

  virtual std::unique_ptr<DeviceEvent> make_event() = 0;
  virtual void record(DeviceEvent& event) = 0;
  virtual bool is_complete(const DeviceEvent& event) const = 0;
  // Waits for all submitted work.
  virtual void host_wait_for_all() = 0;

 private:
  class Mark final : public CpuOperation {
    void carry_out() override {}
    void cancel() noexcept override {}
  };
  struct Reached {
    std::uint64_t position = 0;
    EventLease event;
  };
  static constexpr std::uint64_t kRemembered = 64;

  bool is_watched();
  void wait_on_host(const DeviceEvent& event);
  void flush_to(std::uint64_t position);
  void remember(std::uint64_t position);
  // The recorded event of `position` or the oldest recorded one after it; null if there is none.
  const DeviceEvent* reached(std::uint64_t position) const;

  std::shared_ptr<EventPool> pool_;
  std::array<Reached, kRemembered> reached_;  // position n is at n mod length
  Mark mark_;
  std::optional<CpuStream> queue_;
  std::vector<std::weak_ptr<StreamWatch>> watches_;
  std::uint64_t posted_ = 0;
  std::uint64_t flushed_ = 0;  // all positions up to here have left the queue
};

// Device memory for the few values of a reduction, used by one stream after another.
class DeviceScratch {
 public:
  // Lends the bytes to the next work submitted to `stream`. `stream` waits, on the device, for the work of
  // the previous user.
  std::byte* lend(DeviceStream& stream, std::size_t bytes);
  void give_back(DeviceStream& stream) { is_idle_ = stream.record(); }

 private:
  std::shared_ptr<std::byte> data_;
  std::size_t bytes_ = 0;
  EventLease is_idle_;
};

// Runs a piece of work on a second stream. The work starts after the work submitted to `main` so far; work
// submitted to `main` after join() runs after it. The destructor joins.
class StreamFork {
 public:
  StreamFork(DeviceStream& main, DeviceStream& side) : main_(main), side_(side) {
    side_.wait_for(main_.mark());
  }
  ~StreamFork();
  StreamFork(const StreamFork&) = delete;
  StreamFork& operator=(const StreamFork&) = delete;

  void join();

 private:
  DeviceStream& main_;
  DeviceStream& side_;
  bool joined_ = false;
};

}  // namespace evenkeel
