#include "evenkeel/placement/internal/program/program.h"

namespace evenkeel::exact {

int Program::add_column(Bounds bounds, double cost) {
  columns.push_back(bounds);
  costs.push_back(cost);
  integer.push_back(false);
  return num_columns() - 1;
}

int Program::add_binary() {
  const int column = add_column({0, 1});
  integer.back() = true;
  return column;
}

void Program::add_row(Bounds bounds, std::span<const Term> row) {
  rows.push_back(bounds);
  for (const Term& term : row)
    if (term.coefficient != 0) terms.push_back(term);
  row_begin.push_back(static_cast<int>(terms.size()));
}

}  // namespace evenkeel::exact
