// A mixed-integer linear program in plain vectors: minimise cost x within column and row bounds, some columns
// integer. It uses no types of the solver (HiGHS); only solve() calls it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <limits>
#include <span>
#include <vector>

#include "evenkeel/placement/internal/deadline.h"

namespace evenkeel::internal {

inline constexpr double infinity = std::numeric_limits<double>::infinity();

// Programs with more variables are not tried: they would run out of time or memory.
inline constexpr std::int64_t most_columns = 300'000;
// Nor are programs with more terms in all rows: building them alone takes a second.
inline constexpr std::int64_t most_terms = 50'000'000;

struct Term {
  int column = 0;
  double coefficient = 1;
};

struct Program {
  struct Bounds {
    double lower = 0;
    double upper = 0;
  };

  std::vector<Bounds> columns;
  std::vector<double> costs;
  std::vector<bool> integer;
  std::vector<Bounds> rows;
  std::vector<int> row_begin = {0};  // [rows + 1] offsets into terms
  std::vector<Term> terms;

  int num_columns() const { return static_cast<int>(columns.size()); }

  int add_column(Bounds bounds, double cost = 0, bool is_integer = false) {
    columns.push_back(bounds);
    costs.push_back(cost);
    integer.push_back(is_integer);
    return num_columns() - 1;
  }
  int add_binary() { return add_column({0, 1}, 0, true); }
  // lower <= sum of the terms <= upper. A column may occur only once in a row.
  void add_row(Bounds bounds, std::span<const Term> row) {
    rows.push_back(bounds);
    std::ranges::copy_if(row, std::back_inserter(terms),
                         [](const Term& term) { return term.coefficient != 0; });
    row_begin.push_back(static_cast<int>(terms.size()));
  }
};

struct ProgramOptions {
  double seconds = 60;
  double absolute_gap = 0;  // close enough to stop, such as just below the spacing of possible objectives
  std::span<const double> start = {};  // a value for each column, or empty; continuous ones are recomputed
  double unit = 1;                     // unit of the objective, only for progress
};

struct ProgramAnswer {
  enum class End { optimal, infeasible, interrupted };

  End end = End::interrupted;
  std::vector<double> values;  // the best answer; empty if none was found
  double bound = -infinity;

  bool is_set(int column) const { return values[static_cast<std::size_t>(column)] > 0.5; }
  bool proves_optimum(const Deadline& deadline) const {
    return end == End::optimal && deadline.relative_gap() == 0;
  }
};

// In a build without HiGHS throws Unsupported; the message tells how to get it.
void require_solver();

// Solves within the relative gap of the deadline.
ProgramAnswer solve(const Program& program, const ProgramOptions& options, const Deadline& deadline);

}  // namespace evenkeel::internal
