// The heap memory that the program holds, and its peak. Only C++ allocations are counted; libzip uses a few
// tens of kilobytes more.
#pragma once

#include <cstdint>

namespace evenkeel {

// The peak of bytes held since construction, above those held at construction.
class PeakMemory {
 public:
  PeakMemory();
  std::int64_t bytes() const;

 private:
  std::int64_t before_;
};

}  // namespace evenkeel
