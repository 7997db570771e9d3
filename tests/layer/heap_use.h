// The heap memory that the calling thread uses. Linking this file replaces malloc and related functions for
// the whole program, so operator new, C code and libraries are all counted.
#pragma once

#include <cstdint>

namespace evenkeel::testing {

struct HeapUse {
  bool counting = false;
  std::int64_t allocations = 0;
  std::int64_t live_bytes = 0;  // allocated minus freed bytes, while counting
  std::int64_t peak_bytes = 0;
};

// The counters of the calling thread.
HeapUse& heap_use();

// Counts during its lifetime, and adds to earlier counts.
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
