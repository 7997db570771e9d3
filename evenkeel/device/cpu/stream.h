// The CPU's stream: an in-order queue that the rank's own thread drains when it waits, so that no thread
// works behind a rank's back.
//
// An operation belongs to whoever posts it and is reused by its owner once carried out or cancelled; the
// stream holds pointers only and allocates nothing once its queue has reached its largest length.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <vector>

#include "evenkeel/device/stream.h"

namespace evenkeel {

class CpuStream;

// One piece of work in a CpuStream.
class CpuOperation {
 public:
  CpuOperation() = default;
  CpuOperation(const CpuOperation&) = delete;
  CpuOperation& operator=(const CpuOperation&) = delete;
  // An operation that ends while it is queued leaves its stream; waiting for it then is an error.
  virtual ~CpuOperation();

 private:
  friend class CpuStream;
  // Blocks until the work is done. When it throws, cancel() follows.
  virtual void carry_out() = 0;
  // The work will not be done, or not be finished: something before it failed, or the stream ends.
  virtual void cancel() noexcept = 0;

  CpuStream* stream_ = nullptr;  // while queued
};

class CpuStream final : public Stream {
 public:
  CpuStream() = default;
  CpuStream(const CpuStream&) = delete;
  CpuStream& operator=(const CpuStream&) = delete;
  ~CpuStream() override { cancel_all(); }

  // Makes space for one more operation, so that the next post() cannot fail.
  void reserve();
  Event post(CpuOperation& operation);

  // An event whose work failed, or stood behind work that failed, throws that failure each time.
  void wait(std::uint64_t position) override;
  // Work advances only inside wait() and synchronize(): asking again and again completes nothing.
  bool complete(std::uint64_t position) const override { return position <= done_ && !failed(position); }
  void synchronize() override;

 private:
  friend class CpuOperation;
  bool failed(std::uint64_t position) const { return failed_after_ < position && position <= failed_to_; }
  CpuOperation*& at(std::uint64_t position) { return queue_[position & (queue_.size() - 1)]; }
  void carry_out_next();
  void cancel_all() noexcept;
  void forget(const CpuOperation& operation) noexcept;

  std::vector<CpuOperation*> queue_;  // a ring whose length is a power of two; work n stands at n mod length
  std::uint64_t done_ = 0;
  std::uint64_t posted_ = 0;
  std::uint64_t failed_after_ = 0;  // positions (failed_after_, failed_to_] ended in failure_
  std::uint64_t failed_to_ = 0;
  std::exception_ptr failure_;
};

}  // namespace evenkeel
