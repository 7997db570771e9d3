// The memory that the heap gives to the calling thread. Linking this file replaces malloc and its kin for the
// whole program, so operator new, C code and libraries are all counted.
#pragma once

#include <cstdint>

namespace evenkeel::testing {

struct HeapUse {
  bool counting = false;
  std::int64_t allocations = 0;
  std::int64_t live_bytes = 0;  // given less given back, while counting
  std::int64_t peak_bytes = 0;
};

// Of this thread.
HeapUse& heap_use();

// Counts while it lives; what was counted before stays.
class HeapCounting {
 public:
  explicit HeapCounting(bool counting = true) : before_(heap_use().counting) {
    heap_use().counting = counting;
  }
  ~HeapCounting() { heap_use().counting = before_; }
  HeapCounting(const HeapCounting&) = delete;
  HeapCounting& operator=(const HeapCounting&) = delete;

 private:
  bool before_;
};

}  // namespace evenkeel::testing
