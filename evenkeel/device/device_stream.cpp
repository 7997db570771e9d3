#include "evenkeel/device/device_stream.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <thread>

#include "evenkeel/base/check.h"
#include "evenkeel/base/running_time.h"

namespace evenkeel {

std::unique_ptr<DeviceEvent> EventPool::take() {
  const std::lock_guard lock(mutex_);
  if (idle_.empty()) return nullptr;
  std::unique_ptr<DeviceEvent> event = std::move(idle_.back());
  idle_.pop_back();
  return event;
}

void EventPool::put(std::unique_ptr<DeviceEvent> event) noexcept {
  const std::lock_guard lock(mutex_);
  try {
    idle_.push_back(std::move(event));
  } catch (const std::exception&) {  // no memory to keep the event; a later take() makes a new one
  }
}

DeviceStream::DeviceStream() : pool_(std::make_shared<EventPool>()), queue_(std::in_place) {}

DeviceStream::~DeviceStream() = default;

EventLease DeviceStream::record() {
  std::unique_ptr<DeviceEvent> event = pool_->take();
  if (event == nullptr) event = make_event();
  record(*event);
  return EventLease(event.release(), {pool_});
}

Event DeviceStream::mark() {
  reserve();
  const Event event = post(mark_);
  flush();
  return event;
}

void DeviceStream::wait_for(const Event& event) {
  flush();
  auto* other = dynamic_cast<DeviceStream*>(event.stream());
  if (other == nullptr) return event.wait();
  if (other == this) return;
  other->flush_to(event.position());
  other->queue_->wait(event.position());
  if (const DeviceEvent* reached = other->reached(event.position())) return enqueue_wait(*reached);
  enqueue_wait(*other->record());
}

void DeviceStream::reserve() {
  flush();
  queue_->reserve();
}

Event DeviceStream::post(CpuOperation& operation) {
  queue_->post(operation);
  return Event(*this, ++posted_);
}

void DeviceStream::flush_to(std::uint64_t position) {
  EVENKEEL_CHECK(position <= posted_);
  while (flushed_ < position) {
    try {
      queue_->wait(flushed_ + 1);
    } catch (...) {
      flushed_ = posted_;
      throw;
    }
    remember(++flushed_);
  }
}

// An old position's event is replaced by a newer one; waiting for a newer event is also correct.
void DeviceStream::remember(std::uint64_t position) {
  Reached& place = reached_[position % kRemembered];
  place.event = EventLease();
  place = {position, record()};
}

const DeviceEvent* DeviceStream::reached(std::uint64_t position) const {
  const std::uint64_t oldest = flushed_ < kRemembered ? 1 : flushed_ - kRemembered + 1;
  for (std::uint64_t n = std::max(position, oldest); n <= flushed_; ++n) {
    const Reached& place = reached_[n % kRemembered];
    if (place.position == n) return place.event.get();
  }
  return nullptr;
}

void DeviceStream::wait(std::uint64_t position) {
  flush_to(position);
  queue_->wait(position);
  const DeviceEvent* event = reached(position);
  wait_on_host(event != nullptr ? *event : *record());
}

bool DeviceStream::complete(std::uint64_t position) const {
  if (position > flushed_ || !queue_->complete(position)) return false;
  const DeviceEvent* event = reached(position);
  return event != nullptr && is_complete(*event);
}

void DeviceStream::synchronize() {
  flush();
  if (is_watched()) wait_on_host(*record());
  host_wait_for_all();
}

void DeviceStream::abandon() noexcept {
  queue_.reset();
  try {
    if (is_watched()) wait_on_host(*record());
    host_wait_for_all();
  } catch (const std::exception&) {  // the work will never end, or the device has failed
  }
}

void DeviceStream::watch(const std::shared_ptr<StreamWatch>& watch) {
  const auto same = [&](const std::weak_ptr<StreamWatch>& each) { return each.lock() == watch; };
  if (std::none_of(watches_.begin(), watches_.end(), same)) watches_.push_back(watch);
}

bool DeviceStream::is_watched() {
  std::erase_if(watches_, [](const std::weak_ptr<StreamWatch>& each) { return each.expired(); });
  return !watches_.empty();
}

// Polls without sleeping at first, since most waits are short, then less and less often.
void DeviceStream::wait_on_host(const DeviceEvent& event) {
  if (!is_watched()) return host_wait(event);
  RunningTime waited(std::chrono::milliseconds(100));
  while (!is_complete(event)) {
    const double seconds = std::chrono::duration<double>(waited.look()).count();
    for (const std::weak_ptr<StreamWatch>& each : watches_)
      if (const std::shared_ptr<StreamWatch> watch = each.lock()) watch->check(seconds);
    if (seconds > 50e-6)
      std::this_thread::sleep_for(std::chrono::duration<double>(std::min(seconds / 8, 1e-3)));
  }
}

std::byte* DeviceScratch::lend(DeviceStream& stream, std::size_t bytes) {
  if (is_idle_) stream.enqueue_wait(*is_idle_);
  if (bytes_ < bytes) {
    data_ = stream.make_scratch(bytes);
    bytes_ = bytes;
  }
  return data_.get();
}

StreamFork::~StreamFork() {
  try {
    join();
  } catch (const std::exception&) {  // the next call on the streams throws it again
  }
}

void StreamFork::join() {
  if (joined_) return;
  joined_ = true;
  main_.wait_for(side_.mark());
}

}  // namespace evenkeel
