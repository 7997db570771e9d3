// The memory that a rank has for a step.
#pragma once

#include <cstdint>

namespace evenkeel {

// A rank's memory as it reports it before a step.
struct RankMemory {
  std::int64_t tokens = 0;
  std::int64_t gap = 0;    // bytes that the step can have
  std::int64_t least = 0;  // of these, what must be left to other steps when this one waits for backward
  std::int64_t held = 0;   // the most that it may keep until then
  std::int64_t table = 0;  // for the table of blocks, before anything is given back
};

}  // namespace evenkeel
