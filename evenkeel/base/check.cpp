#include "evenkeel/base/check.h"

#include <cstdio>
#include <cstdlib>

namespace evenkeel {

void invariant_broken(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "evenkeel: invariant broken at %s:%d: %s\n", file, line, condition);
  std::abort();
}

}  // namespace evenkeel
