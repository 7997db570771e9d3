#include <algorithm>
#include <limits>

#include "evenkeel/placement/ranks/internal/methods.h"

namespace evenkeel::internal {

namespace {

class LinearAssignment {
 public:
  LinearAssignment(std::span<const double> costs, std::size_t n)
      : costs_(costs), n_(n), of_row_(n, 0), of_column_(n, 0), row_of_(n, none()), reached_by_(n) {}

  std::vector<int> solve(const Deadline& deadline) {
    for (std::size_t row = 0; row < n_; ++row)
      if (!augment(row, deadline)) return {};
    std::vector<int> column(n_);
    for (std::size_t j = 0; j < n_; ++j) column[row_of_[j]] = static_cast<int>(j);
    return column;
  }

 private:
  static std::size_t none() { return std::numeric_limits<std::size_t>::max(); }

  // Assigns a column to the row along the cheapest augmenting path; false if the deadline passes.
  bool augment(std::size_t row, const Deadline& deadline) {
    distance_.assign(n_, std::numeric_limits<double>::infinity());
    done_.assign(n_, 0);
    std::vector<std::size_t> scanned;
    std::size_t column = none();
    double reached = 0;
    for (std::size_t from = row;;) {
      if (deadline.passed()) return false;
      relax(from, column, reached);
      column = nearest();
      reached = distance_[column];
      if (row_of_[column] == none()) break;
      done_[column] = 1;
      scanned.push_back(column);
      from = row_of_[column];
    }
    of_row_[row] += reached;
    for (std::size_t j : scanned) {
      of_row_[row_of_[j]] += reached - distance_[j];
      of_column_[j] -= reached - distance_[j];
    }
    turn_path(row, column);
    return true;
  }

  void relax(std::size_t from, std::size_t by, double reached) {
    const double* costs = &costs_[from * n_];
    const double base = reached - of_row_[from];
    for (std::size_t j = 0; j < n_; ++j) {
      const double distance = base + costs[j] - of_column_[j];
      if (done_[j] || distance >= distance_[j]) continue;
      distance_[j] = distance;
      reached_by_[j] = by;
    }
  }

  std::size_t nearest() const {
    std::size_t best = none();
    for (std::size_t j = 0; j < n_; ++j)
      if (!done_[j] && (best == none() || distance_[j] < distance_[best])) best = j;
    return best;
  }

  void turn_path(std::size_t row, std::size_t column) {
    while (reached_by_[column] != none()) {
      row_of_[column] = row_of_[reached_by_[column]];
      column = reached_by_[column];
    }
    row_of_[column] = row;
  }

  std::span<const double> costs_;
  std::size_t n_;
  std::vector<double> of_row_;  // dual potentials
  std::vector<double> of_column_;
  std::vector<std::size_t> row_of_;  // the row of each column
  std::vector<std::size_t> reached_by_;
  std::vector<double> distance_;
  std::vector<char> done_;
};

class Matching {
 public:
  Matching(std::span<const double> costs, std::size_t n, const Deadline& deadline)
      : costs_(costs), n_(n), deadline_(deadline) {}

  // Whether all rows get different columns at costs of at most `most`. Meaningless once ended() is true.
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
  bool place(std::size_t row) {  // NOLINT(misc-no-recursion): depth is at most n
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
  std::vector<int> row_of_;  // the row of each column, -1 while free
  std::vector<char> seen_;
};

}  // namespace

std::vector<int> least_total_assignment(std::span<const double> costs, std::size_t n,
                                        const Deadline& deadline) {
  return LinearAssignment(costs, n).solve(deadline);
}

std::vector<int> least_largest_assignment(std::span<const double> costs, std::size_t n,
                                          const Deadline& deadline) {
  std::vector<double> levels(costs.begin(), costs.end());
  std::ranges::sort(levels);
  Matching matching(costs, n, deadline);
  auto low = levels.begin();
  for (auto high = levels.end() - 1; low < high;) {
    const auto middle = low + (high - low) / 2;
    const bool complete = matching.complete(*middle);
    if (matching.ended()) return {};
    (complete ? high : low) = complete ? middle : middle + 1;
  }
  if (matching.complete(*low), matching.ended()) return {};
  return matching.columns();
}

}  // namespace evenkeel::internal
