// A stream is an in-order queue of work; an event is a point in it to wait for.
#pragma once

#include <cstdint>

namespace evenkeel {

class Stream;

// A point in a stream. Copies are cheap; a default event is complete.
class Event {
 public:
  Event() = default;
  Event(Stream& stream, std::uint64_t position) : stream_(&stream), position_(position) {}

  // Blocks until all work up to this point is done. Throws what that work throws.
  void wait() const;
  bool complete() const;

  // Null for a default event.
  Stream* stream() const { return stream_; }
  std::uint64_t position() const { return position_; }

 private:
  Stream* stream_ = nullptr;
  std::uint64_t position_ = 0;
};

// An in-order queue of work. Not thread-safe.
class Stream {
 public:
  virtual ~Stream() = default;
  // Blocks until all work up to `position` is done. Throws what that work throws; the stream is then empty.
  virtual void wait(std::uint64_t position) = 0;
  virtual bool complete(std::uint64_t position) const = 0;
  virtual void synchronize() = 0;
};

inline void Event::wait() const {
  if (stream_ != nullptr) stream_->wait(position_);
}
inline bool Event::complete() const {
  return stream_ == nullptr || stream_->complete(position_);
}

}  // namespace evenkeel
