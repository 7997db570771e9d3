#include "evenkeel/placement/internal/bottleneck_assignment.h"

#include <algorithm>

namespace evenkeel::internal {

namespace {

class Matching {
 public:
  Matching(std::span<const double> costs, std::size_t n) : costs_(costs), n_(n) {}

  // Whether all rows have columns of their own at costs up to `most`.
  bool complete(double most) {
    most_ = most;
    row_of_.assign(n_, -1);
    for (std::size_t row = 0; row < n_; ++row) {
      seen_.assign(n_, 0);
      if (!place(row)) return false;
    }
    return true;
  }

  std::vector<int> columns() const {
    std::vector<int> columns(n_);
    for (std::size_t j = 0; j < n_; ++j) columns[static_cast<std::size_t>(row_of_[j])] = static_cast<int>(j);
    return columns;
  }

 private:
  bool place(std::size_t row) {  // NOLINT(misc-no-recursion): as deep as there are rows
    for (std::size_t j = 0; j < n_; ++j) {
      if (seen_[j] || costs_[row * n_ + j] > most_) continue;
      seen_[j] = 1;
      if (row_of_[j] >= 0 && !place(static_cast<std::size_t>(row_of_[j]))) continue;
      row_of_[j] = static_cast<int>(row);
      return true;
    }
    return false;
  }

  std::span<const double> costs_;
  std::size_t n_;
  double most_ = 0;
  std::vector<int> row_of_;  // of a column, -1 while free
  std::vector<char> seen_;
};

}  // namespace

std::vector<int> least_largest_assignment(std::span<const double> costs, int n) {
  std::vector<double> levels(costs.begin(), costs.end());
  std::sort(levels.begin(), levels.end());
  levels.erase(std::unique(levels.begin(), levels.end()), levels.end());
  Matching matching(costs, static_cast<std::size_t>(n));
  std::size_t low = 0;
  std::size_t high = levels.size() - 1;
  while (low < high) {
    const std::size_t middle = (low + high) / 2;
    if (matching.complete(levels[middle]))
      high = middle;
    else
      low = middle + 1;
  }
  matching.complete(levels[low]);
  return matching.columns();
}

}  // namespace evenkeel::internal
