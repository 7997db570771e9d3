// Replaces highs.cpp in a build without HiGHS.
#include "evenkeel/base/error.h"
#include "evenkeel/placement/internal/program/program.h"

namespace evenkeel {

bool has_exact_solver() {
  return false;
}

namespace internal {

void require_solver() {
  throw Unsupported(
      "this build has no integer-program solver, HiGHS: run `tools/setup.sh highs && make build` (the Python "
      "package: "
      "`tools/setup.sh highs && pip install .`), or use the fast solver");
}

ProgramAnswer solve(const Program&, const ProgramOptions&, const Deadline&) {
  require_solver();
  return {};
}

}  // namespace internal
}  // namespace evenkeel
