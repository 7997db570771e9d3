// A mixed-integer linear program in plain vectors, so that what is solved can be written down without the
// solver's types: minimise cost x over column and row bounds, some columns integer.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace evenkeel::exact {

inline constexpr double infinity = std::numeric_limits<double>::infinity();

// A program of more variables is not tried: it would end neither in time nor in memory.
inline constexpr std::int64_t most_columns = 300'000;
// Nor with more terms than this in all rows: writing them down alone takes a second.
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
  std::vector<int> row_begin = {0};  // [rows + 1] into terms
  std::vector<Term> terms;

  int num_columns() const { return static_cast<int>(columns.size()); }
  int num_rows() const { return static_cast<int>(rows.size()); }

  int add_column(Bounds bounds, double cost = 0);
  int add_binary();
  // lower <= sum of the terms <= upper. A column may stand in it once only.
  void add_row(Bounds bounds, std::span<const Term> row);
};

}  // namespace evenkeel::exact
