#include "evenkeel/device/cpu/internal/address_slots.h"

#include <map>
#include <mutex>

#include "evenkeel/base/error.h"

namespace evenkeel::internal {

namespace {

// Of the 47 bits of addresses that a process has on x86-64 and, at least, on AArch64: programs and their
// heaps begin at 85 (x86-64) or 170 TiB, libraries and stacks go down from the end.
constexpr std::uintptr_t kFirst = std::uintptr_t{16} << 40;
constexpr std::uintptr_t kEnd = std::uintptr_t{80} << 40;

struct Slots {
  std::mutex mutex;
  std::map<std::uintptr_t, std::uintptr_t> taken;  // begin and end, by address
};

Slots& slots() {
  static Slots all;
  return all;
}

}  // namespace

AddressSlot::AddressSlot(std::size_t bytes) : begin_(kFirst) {
  const std::lock_guard lock(slots().mutex);
  for (const auto& [begin, end] : slots().taken) {
    if (begin - begin_ >= bytes) break;
    begin_ = end;
  }
  if (bytes > kEnd - begin_) throw Unsupported("all addresses that arenas can have are taken");
  slots().taken[begin_] = begin_ + bytes;
}

AddressSlot::~AddressSlot() {
  const std::lock_guard lock(slots().mutex);
  slots().taken.erase(begin_);
}

}  // namespace evenkeel::internal
