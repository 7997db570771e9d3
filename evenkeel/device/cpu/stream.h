// The CPU's stream: an in-order queue that the rank's own thread drains when it waits. No background thread
// works for it.
//
// The caller of post() owns the operation and may reuse it once it was carried out or cancelled. The stream
// holds only pointers, and allocates nothing once its queue has reached its largest length.
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
  // Removes the operation from its stream if it is still queued; waiting for it then throws.
  virtual ~CpuOperation();

 private:
  friend class CpuStream;
  // Blocks until the work is done. If it throws, the stream calls cancel().
  virtual void carry_out() = 0;
  // Called when the work will not be finished: carry_out() or earlier work failed, or the stream is
  // destroyed.
  virtual void cancel() noexcept = 0;

  CpuStream* stream_ = nullptr;  // while queued
};

class CpuStream final : public Stream {
 public:
  CpuStream() = default;
  CpuStream(const CpuStream&) = delete;
  CpuStream& operator=(const CpuStream&) = delete;
  ~CpuStream() override { cancel_all(); }

  // Makes space for one more operation, so that the next post() does not throw.
  void reserve();
  Event post(CpuOperation& operation);

  // If the work or work queued before it failed, every wait for it throws that failure.
  void wait(std::uint64_t position) override;
  // Work advances only inside wait() and synchronize(), so polling complete() makes no progress.
  bool complete(std::uint64_t position) const override { return position <= done_ && !failed(position); }
  void synchronize() override;

 private:
  friend class CpuOperation;
  bool failed(std::uint64_t position) const { return failed_after_ < position && position <= failed_to_; }
  CpuOperation*& at(std::uint64_t position) { return queue_[position & (queue_.size() - 1)]; }
  void carry_out_next();
  void cancel_all() noexcept;
  void forget(const CpuOperation& operation) noexcept;

  std::vector<CpuOperation*> queue_;  // ring buffer, length a power of two; operation n is at n mod length
  std::uint64_t done_ = 0;
  std::uint64_t posted_ = 0;
  std::uint64_t failed_after_ = 0;  // positions (failed_after_, failed_to_] failed with failure_
  std::uint64_t failed_to_ = 0;
  std::exception_ptr failure_;
};

}  // namespace evenkeel
