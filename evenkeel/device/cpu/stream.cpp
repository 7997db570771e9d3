#include "evenkeel/device/cpu/stream.h"

#include <algorithm>

#include "evenkeel/base/check.h"
#include "evenkeel/base/error.h"

namespace evenkeel {

CpuOperation::~CpuOperation() {
  if (stream_ != nullptr) stream_->forget(*this);
}

void CpuStream::reserve() {
  if (posted_ - done_ < queue_.size()) return;
  std::vector<CpuOperation*> larger(std::max<std::size_t>(16, 2 * queue_.size()), nullptr);
  for (std::uint64_t n = done_; n < posted_; ++n) larger[n & (larger.size() - 1)] = at(n);
  queue_ = std::move(larger);
}

Event CpuStream::post(CpuOperation& operation) {
  EVENKEEL_CHECK(operation.stream_ == nullptr);
  reserve();
  operation.stream_ = this;
  at(posted_++) = &operation;
  return Event(*this, posted_);
}

void CpuStream::wait(std::uint64_t position) {
  EVENKEEL_CHECK(position <= posted_);
  if (failed(position)) std::rethrow_exception(failure_);
  while (done_ < position) carry_out_next();
}

void CpuStream::synchronize() {
  while (done_ < posted_) carry_out_next();
}

void CpuStream::carry_out_next() {
  CpuOperation* operation = at(done_);
  try {
    if (operation == nullptr) {
      throw InvalidArgument("stream", "an operation was destroyed before it was carried out");
    }
    operation->carry_out();
  } catch (...) {
    failure_ = std::current_exception();
    failed_after_ = done_;
    failed_to_ = posted_;
    cancel_all();
    throw;
  }
  operation->stream_ = nullptr;
  ++done_;
}

void CpuStream::cancel_all() noexcept {
  for (; done_ < posted_; ++done_) {
    CpuOperation* operation = at(done_);
    if (operation == nullptr) continue;
    operation->stream_ = nullptr;
    operation->cancel();
  }
}

void CpuStream::forget(const CpuOperation& operation) noexcept {
  for (std::uint64_t n = done_; n < posted_; ++n) {
    if (at(n) == &operation) at(n) = nullptr;
  }
}

}  // namespace evenkeel
