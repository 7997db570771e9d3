// A digest of numbers that is the same in every run and every program.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace evenkeel {

// FNV-1a over the bytes of trivially copyable values.
class Hash {
 public:
  template <class... Values>
  Hash& add(const Values&... values) {
    (add_bytes(std::as_bytes(std::span(&values, 1))), ...);
    return *this;
  }
  Hash& add_bytes(std::span<const std::byte> bytes) {
    for (std::byte byte : bytes) state_ = (state_ ^ static_cast<std::uint64_t>(byte)) * 1099511628211ull;
    return *this;
  }
  std::uint64_t value() const { return state_; }

 private:
  std::uint64_t state_ = 14695981039346656037ull;
};

}  // namespace evenkeel
