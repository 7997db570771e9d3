// What the program holds of the heap, and the most it held at once. C++ allocations alone are counted; what
// libzip takes besides is a few tens of kilobytes.
#pragma once

#include <cstdint>

namespace evenkeel {

// The most bytes held above what was held when this was made.
class PeakMemory {
 public:
  PeakMemory();
  std::int64_t bytes() const;

 private:
  std::int64_t before_;
};

}  // namespace evenkeel
