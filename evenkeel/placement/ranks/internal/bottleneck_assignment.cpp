#include "evenkeel/placement/ranks/internal/bottleneck_assignment.h"

#include <algorithm>

namespace evenkeel::internal {

namespace {

class Matching {
 public:
  Matching(std::span<const double> costs, std::size_t n, const Deadline& deadline)
      : costs_(costs), n_(n), deadline_(deadline) {}

  // Whether all rows have columns of their own at costs up to `most`. Once ended(), the answer means nothing.
  bool complete(double most) {
    most_ = most;
    row_of_.assign(n_, -1);
    for (std::size_t row = 0; row < n_; ++row) {
      seen_.assign(n_, 0);
      if (!place(row)) return false;
    }
    return !ended_;
  }
  bool ended() const { return ended_; }

  std::vector<int> columns() const {
    std::vector<int> columns(n_);
    for (std::size_t j = 0; j < n_; ++j) columns[static_cast<std::size_t>(row_of_[j])] = static_cast<int>(j);
    return columns;
  }

 private:
  bool place(std::size_t row) {  // NOLINT(misc-no-recursion): as deep as there are rows
    ended_ = ended_ || deadline_.passed();
    if (ended_) return false;
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
  const Deadline& deadline_;
  bool ended_ = false;
  double most_ = 0;
  std::vector<int> row_of_;  // of a column, -1 while free
  std::vector<char> seen_;
};

}  // namespace

std::vector<int> least_largest_assignment(std::span<const double> costs, int n, const Deadline& deadline) {
  // The level looked for is in low..high. Halving them leaves what lies between unsorted: all costs of many
  // rows take long to sort.
  std::vector<double> levels(costs.begin(), costs.end());
  Matching matching(costs, static_cast<std::size_t>(n), deadline);
  auto low = levels.begin();
  auto high = levels.end() - 1;
  std::iter_swap(high, std::max_element(low, levels.end()));
  while (low < high && !deadline.passed()) {
    const auto middle = low + (high - low) / 2;
    std::nth_element(low, middle, high + 1);
    const double level = *middle;
    const bool complete = matching.complete(level);
    if (matching.ended()) return {};
    if (complete) {
      high = middle;
    } else {
      low = std::partition(middle + 1, high + 1, [level](double other) { return other <= level; });
    }
  }
  if (deadline.passed() || (matching.complete(*low), matching.ended())) return {};
  return matching.columns();
}

}  // namespace evenkeel::internal
