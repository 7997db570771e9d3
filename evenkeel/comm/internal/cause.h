// Why the ranks of a root stopped.
#pragma once

#include <string>

namespace evenkeel::internal {

struct Cause {
  int peer = -1;      // the rank to blame
  int other = -1;     // the one that `peer` itself blames, where two disagree
  int found_by = -1;  // the rank that told the others
  std::string message;
};

}  // namespace evenkeel::internal
