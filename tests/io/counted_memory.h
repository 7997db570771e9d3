// Heap memory that the program holds, and the most that it held at once. C++ allocations alone are counted;
// libzip takes a few tens of kilobytes besides.
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
