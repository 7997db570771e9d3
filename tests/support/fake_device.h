// A simulated device that does its work as late, and in as unusual an order, as its streams and events allow.
//
// Work given to a FakeStream is only recorded, together with its dependencies: the work before it on the
// stream, and the events that the stream was told to wait for. It runs only once the host waits for it. Then
// the device does the required work in a random order that respects these dependencies and nothing else. So a
// missing wait changes the resulting bytes.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <stdexcept>
#include <vector>

#include "evenkeel/device/device_stream.h"

namespace evenkeel::testing {

class FakeDevice {
 public:
  using Work = std::function<void()>;
  static constexpr std::size_t kNothing = static_cast<std::size_t>(-1);

  explicit FakeDevice(std::uint64_t seed) : random_(seed) {}

  // Records work that depends on the tasks `after`; returns its number.
  std::size_t add(std::vector<std::size_t> after, Work work) {
    const std::lock_guard lock(mutex_);
    tasks_.push_back({std::move(after), std::move(work), false});
    return tasks_.size() - 1;
  }

  // Does `task`, its dependencies, and some unrelated tasks.
  void reach(std::size_t task) {
    const std::lock_guard lock(mutex_);
    if (task == kNothing) return;
    std::vector<bool> wanted(tasks_.size());
    want(task, wanted);
    for (std::size_t i = 0; i < tasks_.size(); ++i) {
      if (!wanted[i] && random_() % 8 == 0) want(i, wanted);
    }
    carry_out(wanted);
  }

  void reach_all() {
    const std::lock_guard lock(mutex_);
    carry_out(std::vector<bool>(tasks_.size(), true));
  }

  bool is_done(std::size_t task) const {
    const std::lock_guard lock(mutex_);
    return task == kNothing || tasks_[task].done;
  }

  std::byte* scratch(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    scratch_.push_back(std::make_unique<std::byte[]>(bytes));
    return scratch_.back().get();
  }

 private:
  struct Task {
    std::vector<std::size_t> after;
    Work work;
    bool done;
  };

  void want(std::size_t task, std::vector<bool>& wanted) const {
    std::vector<std::size_t> open{task};
    while (!open.empty()) {
      const std::size_t next = open.back();
      open.pop_back();
      if (wanted[next] || tasks_[next].done) continue;
      wanted[next] = true;
      for (std::size_t before : tasks_[next].after)
        if (before != kNothing) open.push_back(before);
    }
  }

  bool is_ready(const Task& task) const {
    for (std::size_t before : task.after)
      if (before != kNothing && !tasks_[before].done) return false;
    return true;
  }

  void carry_out(const std::vector<bool>& wanted) {
    for (;;) {
      std::vector<std::size_t> ready;
      for (std::size_t i = 0; i < wanted.size(); ++i)
        if (wanted[i] && !tasks_[i].done && is_ready(tasks_[i])) ready.push_back(i);
      if (ready.empty()) return;
      Task& task = tasks_[ready[random_() % ready.size()]];
      if (task.work) task.work();
      task.done = true;
    }
  }

  mutable std::mutex mutex_;
  std::mt19937_64 random_;
  std::vector<Task> tasks_;
  std::vector<std::unique_ptr<std::byte[]>> scratch_;  // kept, since delayed work may still use it
};

struct FakeEvent final : DeviceEvent {
  std::size_t task = FakeDevice::kNothing;
};

class FakeStream final : public DeviceStream {
 public:
  explicit FakeStream(FakeDevice& device) : device_(device) {}
  ~FakeStream() override { abandon(); }

  // Launches a kernel.
  void launch(FakeDevice::Work work) {
    flush();
    enqueue(std::move(work));
  }
  // From now on, no work that is handed over ends before `until` is true.
  void hang(std::shared_ptr<const std::atomic<bool>> until) { hangs_until_ = std::move(until); }
  // The n-th copy throws; with n = 0, no copy does.
  void fail_at_copy(int n) { copies_to_failure_ = n; }

  void copy(void* to, const void* from, std::size_t bytes) override {
    if (copies_to_failure_ > 0 && --copies_to_failure_ == 0)
      throw std::runtime_error("the copy engine is on fire");
    enqueue([=] { std::memcpy(to, from, bytes); });
  }
  void reduce(const void* values, int parts, std::int64_t n, ValueType type, Reduction reduction,
              void* reduced) override {
    if (type == ValueType::int64) {
      enqueue([=] { reduce_as<std::int64_t>(values, parts, n, reduction, reduced); });
    } else {
      enqueue([=] { reduce_as<double>(values, parts, n, reduction, reduced); });
    }
  }
  std::shared_ptr<std::byte> make_scratch(std::size_t bytes) override {
    return {device_.scratch(bytes), [](std::byte*) {}};
  }
  using DeviceStream::record;
  void enqueue_wait(const DeviceEvent& event) override {
    waits_.push_back(static_cast<const FakeEvent&>(event).task);
  }
  void host_wait(const DeviceEvent& event) override {
    device_.reach(static_cast<const FakeEvent&>(event).task);
  }

 private:
  template <class Value>
  static void reduce_as(const void* values, int parts, std::int64_t n, Reduction reduction, void* reduced) {
    const auto* from = static_cast<const Value*>(values);
    for (std::int64_t i = 0; i < n; ++i) {
      Value total = from[i];
      for (int part = 1; part < parts; ++part) {
        const Value next = from[part * n + i];
        total = reduction == Reduction::sum   ? total + next
                : reduction == Reduction::min ? (next < total ? next : total)
                                              : (total < next ? next : total);
      }
      static_cast<Value*>(reduced)[i] = total;
    }
  }

  void enqueue(FakeDevice::Work work) {
    waits_.push_back(last_);
    last_ = device_.add(std::move(waits_), std::move(work));
    waits_.clear();
  }

  std::unique_ptr<DeviceEvent> make_event() override { return std::make_unique<FakeEvent>(); }
  // The events that the stream waits for count as work of the stream.
  void record(DeviceEvent& event) override {
    if (!waits_.empty()) enqueue(nullptr);
    static_cast<FakeEvent&>(event).task = last_;
  }
  bool hangs() const { return hangs_until_ != nullptr && !*hangs_until_; }
  // Each query lets a hanging device progress to the event, once the hang is over.
  bool is_complete(const DeviceEvent& event) const override {
    if (hangs()) return false;
    if (hangs_until_ != nullptr) device_.reach(static_cast<const FakeEvent&>(event).task);
    return device_.is_done(static_cast<const FakeEvent&>(event).task);
  }
  void host_wait_for_all() override {
    if (hangs()) throw std::runtime_error("would wait for ever");
    if (!waits_.empty()) enqueue(nullptr);
    device_.reach(last_);
  }

  FakeDevice& device_;
  std::size_t last_ = FakeDevice::kNothing;
  std::vector<std::size_t> waits_;
  int copies_to_failure_ = 0;
  std::shared_ptr<const std::atomic<bool>> hangs_until_;
};

}  // namespace evenkeel::testing
