// Places for ranges that take their addresses one page after the other: far from where the system puts
// anything by itself (the heap, libraries and stacks), so that the page behind the last is free when it is
// wanted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

#include "evenkeel/base/error.h"

namespace evenkeel::internal {

// So many addresses that no other slot of this process has, as long as this lives. Nothing is mapped there.
class AddressSlot {
 public:
  // `bytes` and the place are whole pages of 2 MiB. Throws Unsupported where all such places are taken.
  explicit AddressSlot(std::size_t bytes) : begin_(kFirst) {
    const std::lock_guard lock(taken().mutex);
    for (const auto& [begin, end] : taken().ends) {
      if (begin - begin_ >= bytes) break;
      begin_ = end;
    }
    if (bytes > kEnd - begin_) throw Unsupported("all addresses that arenas can have are taken");
    taken().ends[begin_] = begin_ + bytes;
  }
  ~AddressSlot() {
    const std::lock_guard lock(taken().mutex);
    taken().ends.erase(begin_);
  }
  AddressSlot(const AddressSlot&) = delete;
  AddressSlot& operator=(const AddressSlot&) = delete;

  std::byte* begin() const {
    return reinterpret_cast<std::byte*>(begin_);  // NOLINT: an address, which mmap was asked for
  }

 private:
  // Of the 47 bits of addresses that a process has on x86-64 and, at least, on AArch64: programs and their
  // heaps begin at 85 (x86-64) or 170 TiB, libraries and stacks go down from the end.
  static constexpr std::uintptr_t kFirst = std::uintptr_t{16} << 40;
  static constexpr std::uintptr_t kEnd = std::uintptr_t{80} << 40;

  struct Taken {
    std::mutex mutex;
    std::map<std::uintptr_t, std::uintptr_t> ends;  // of the slots, by where they begin
  };
  static Taken& taken() {
    static Taken all;
    return all;
  }

  std::uintptr_t begin_;
};

}  // namespace evenkeel::internal
