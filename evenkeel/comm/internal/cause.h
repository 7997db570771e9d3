// Why the ranks of a root stopped.
#pragma once

#include <string>

namespace evenkeel::internal {

struct Cause {
  int peer = -1;      // the rank to blame
  int other = -1;     // the rank that the error on `peer` itself names, if two ranks disagree
  int found_by = -1;  // the rank that reported it to the others
  std::string message;
};

}  // namespace evenkeel::internal
