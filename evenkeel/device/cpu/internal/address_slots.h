// Address slots for ranges that grow page by page. They are far from the heap, libraries and stacks, so that
// the next page is still free when it is needed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

#include "evenkeel/base/error.h"

namespace evenkeel::internal {

// Owns `bytes` addresses that no other slot of this process overlaps. Maps nothing.
class AddressSlot {
 public:
  // `bytes` must be a multiple of 2 MiB, and begin() is one too. Throws Unsupported if no slot is free.
  explicit AddressSlot(std::size_t bytes) : begin_(kFirst) {
    const std::lock_guard lock(taken().mutex);
    for (const auto& [begin, end] : taken().ends) {
      if (begin - begin_ >= bytes) break;
      begin_ = end;
    }
    if (bytes > kEnd - begin_)
      throw Unsupported("no address range is free for another arena; destroy one, or give arenas budgets");
    taken().ends[begin_] = begin_ + bytes;
  }
  ~AddressSlot() {
    const std::lock_guard lock(taken().mutex);
    taken().ends.erase(begin_);
  }
  AddressSlot(const AddressSlot&) = delete;
  AddressSlot& operator=(const AddressSlot&) = delete;

  std::byte* begin() const {
    return reinterpret_cast<std::byte*>(begin_);  // NOLINT: the address to pass to mmap
  }

 private:
  // A process has at least 47 bits of addresses on x86-64 and AArch64. Programs and their heaps begin at 85
  // TiB (x86-64) or 170 TiB (AArch64); libraries and stacks grow down from the end.
  static constexpr std::uintptr_t kFirst = std::uintptr_t{16} << 40;
  static constexpr std::uintptr_t kEnd = std::uintptr_t{80} << 40;

  struct Taken {
    std::mutex mutex;
    std::map<std::uintptr_t, std::uintptr_t> ends;  // each slot's end, by its begin
  };
  static Taken& taken() {
    static Taken all;
    return all;
  }

  std::uintptr_t begin_;
};

}  // namespace evenkeel::internal
