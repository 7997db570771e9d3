// Hands out parts of one piece of memory, or, without a piece, adds up what they take.
#pragma once

#include <cstddef>
#include <cstdint>

namespace evenkeel::cuda {

class Carver {
 public:
  explicit Carver(std::byte* base = nullptr) : base_(base) {}

  template <class T>
  T* take(std::int64_t count) {
    const std::int64_t begin = taken_;
    taken_ += (count * static_cast<std::int64_t>(sizeof(T)) + kAlignment - 1) / kAlignment * kAlignment;
    return base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + begin);
  }
  std::int64_t taken() const { return taken_; }

 private:
  static constexpr std::int64_t kAlignment = 256;

  std::byte* base_;
  std::int64_t taken_ = 0;
};

}  // namespace evenkeel::cuda
