// The one door to the integer-program solver (HiGHS); nothing outside its source names it.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "evenkeel/placement/internal/program/monitor.h"
#include "evenkeel/placement/internal/program/program.h"

namespace evenkeel::exact {

struct ProgramOptions {
  double seconds = 60;
  double relative_gap = 0;
  double absolute_gap = 0;             // where objectives are known to lie on a grid, just under its step
  std::span<const double> start = {};  // a value for each column, or nothing; continuous ones are found again
  double unit = 1;                     // of the objective, for progress alone
};

struct ProgramAnswer {
  enum class End { optimal, infeasible, interrupted };

  End end = End::interrupted;
  std::vector<double> values;  // of the best answer; empty: none was found
  double bound = -infinity;

  bool is_set(int column) const { return values[static_cast<std::size_t>(column)] > 0.5; }
};

// Throws Unsupported, saying how to get it, in a build without HiGHS.
void require_solver();

ProgramAnswer solve(const Program& program, const ProgramOptions& options, const Monitor& monitor);

}  // namespace evenkeel::exact
