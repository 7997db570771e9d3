// A stream whose work a device carries out by itself: the host hands work over and goes on.
//
// Order     Work handed over is done in order. mark() is the point up to now; wait_for() holds later work
//           back until another stream has reached its point, and the host waits for neither.
// Posted    Operations that first need a word from other ranks' threads (a communicator's) wait in a queue on
//           the host until then: flush(), which everything that hands over work calls first, takes the rank's
//           own thread through them. So what is handed over after an operation was posted comes after it, and
//           while it is only posted the host is free.
// Peers     Device events pass between threads: one thread records an event, others have their streams wait
//           for it.
// Errors    A posted operation that fails throws from flush(), so from whatever comes next, and takes those
//           posted behind it along; an Event of it throws each time, as on a CpuStream.
// Watches   Some work ends only if other ranks do their part on their devices. Who hands such work over has
//           the stream watched, and a thread that waits for it looks now and then whether it still may end.
// Threads   A stream belongs to one thread; events to whoever holds them.
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

// A point in a device's work, once recorded.
class DeviceEvent {
 public:
  virtual ~DeviceEvent() = default;
};

// Events in turn, so that none is made once as many are there as were ever wanted at once.
class EventPool {
 public:
  std::unique_ptr<DeviceEvent> take();  // null if none is idle
  void put(std::unique_ptr<DeviceEvent> event) noexcept;

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<DeviceEvent>> idle_;
};

// An event in use: goes back to its pool when whoever waits for it has said so to the device, and assigns
// EventLease() to it.
struct GiveBack {
  std::shared_ptr<EventPool> pool;
  void operator()(DeviceEvent* event) const noexcept { pool->put(std::unique_ptr<DeviceEvent>(event)); }
};
using EventLease = std::unique_ptr<DeviceEvent, GiveBack>;

// Looks after work of a stream that may never end.
class StreamWatch {
 public:
  virtual ~StreamWatch() = default;
  // By the thread that waits, `seconds` after it began to. Throws where it would wait in vain.
  virtual void look(double seconds) = 0;
};

class DeviceStream : public Stream {
 public:
  ~DeviceStream() override;
  DeviceStream(const DeviceStream&) = delete;
  DeviceStream& operator=(const DeviceStream&) = delete;

  // The point that all work up to now has reached.
  Event mark();
  // Later work here comes after `event`: on the device where it is of a DeviceStream of this thread, else by
  // waiting.
  void wait_for(const Event& event);

  // For communicators. A posted operation hands over its work in carry_out(). reserve() flushes, and makes
  // space for one more, so that the next post() cannot fail.
  void reserve();
  Event post(CpuOperation& operation);
  void flush() { flush_to(posted_); }

  // For carry_out(), and kernels' wrappers: what they hand over. No flush.
  virtual void copy(void* to, const void* from, std::size_t bytes) = 0;
  // reduced[i] = values[i] and values[n + i] and ... for so many parts, in this order.
  virtual void reduce(const void* values, int parts, std::int64_t n, ValueType type, Reduction reduction,
                      void* reduced) = 0;
  // Bytes of the device.
  virtual std::shared_ptr<std::byte> make_scratch(std::size_t bytes) = 0;
  EventLease record();
  virtual void enqueue_wait(const DeviceEvent& event) = 0;
  virtual void host_wait(const DeviceEvent& event) = 0;

  // Every wait on the host looks from now on, for as long as the watch lives.
  void watch(const std::shared_ptr<StreamWatch>& watch);

  // Positions count operations and marks.
  void wait(std::uint64_t position) override;
  bool complete(std::uint64_t position) const override;
  void synchronize() override;

 protected:
  DeviceStream();
  // Derived streams end with this: cancels what was only posted, and waits for what was handed over and may
  // still end.
  void abandon() noexcept;

  virtual std::unique_ptr<DeviceEvent> make_event() = 0;
  virtual void record(DeviceEvent& event) = 0;
  virtual bool is_complete(const DeviceEvent& event) const = 0;
  // Waits for all work that was handed over.
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
  // Null where it is not known any more, or nothing was carried out since.
  const DeviceEvent* reached(std::uint64_t position) const;

  std::shared_ptr<EventPool> pool_;
  std::array<Reached, kRemembered> reached_;  // position n stands at n mod length
  Mark mark_;
  std::optional<CpuStream> queue_;
  std::vector<std::weak_ptr<StreamWatch>> watches_;
  std::uint64_t posted_ = 0;
  std::uint64_t carried_ = 0;  // all positions up to here have left the queue
};

// Bytes of a device for the few values of a reduction, which one stream after another works in.
class DeviceScratch {
 public:
  // For work that `stream` is handed next; it waits, on the device, for the work of who had the bytes before.
  std::byte* lend(DeviceStream& stream, std::size_t bytes);
  void give_back(DeviceStream& stream) { is_idle_ = stream.record(); }

 private:
  std::shared_ptr<std::byte> data_;
  std::size_t bytes_ = 0;
  EventLease is_idle_;
};

// Lends a second stream to a piece of work: it begins after what `main` has up to now, and what `main` gets
// after join() comes after it. A fork that ends unjoined joins.
class Fork {
 public:
  Fork(DeviceStream& main, DeviceStream& side) : main_(main), side_(side) { side_.wait_for(main_.mark()); }
  ~Fork();
  Fork(const Fork&) = delete;
  Fork& operator=(const Fork&) = delete;

  void join();

 private:
  DeviceStream& main_;
  DeviceStream& side_;
  bool joined_ = false;
};

}  // namespace evenkeel
