// Places for ranges that take their addresses one page after the other: far from where the system puts
// anything by itself (the heap, libraries and stacks), so that the page behind the last is free when it is
// wanted.
#pragma once

#include <cstddef>
#include <cstdint>

namespace evenkeel::internal {

// So many addresses that no other slot of this process has, as long as this lives. Nothing is mapped there.
class AddressSlot {
 public:
  // `bytes` and the place are whole pages of 2 MiB. Throws Unsupported where all such places are taken.
  explicit AddressSlot(std::size_t bytes);
  ~AddressSlot();
  AddressSlot(const AddressSlot&) = delete;
  AddressSlot& operator=(const AddressSlot&) = delete;

  std::byte* begin() const {
    return reinterpret_cast<std::byte*>(begin_);  // NOLINT: an address, which mmap was asked for
  }

 private:
  std::uintptr_t begin_;
};

}  // namespace evenkeel::internal
