#include "evenkeel/plan/counts.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "evenkeel/base/error.h"

namespace evenkeel {

namespace {

void add_checked(std::int64_t& sum, std::int64_t count, std::size_t expert) {
  if (count < 0)
    throw InvalidArgument("counts", fmt::format("expert {} has count {}", expert, count), "0 or more");
  if (__builtin_add_overflow(sum, count, &sum))
    throw InvalidArgument("counts", "the total of loads is above 2^63-1", "at most 2^63-1");
}

}  // namespace

Counts Counts::of_loads(std::span<const std::int64_t> loads, int num_ranks) {
  Counts counts;
  counts.num_ranks_ = num_ranks;
  counts.loads_.assign(loads.begin(), loads.end());
  for (std::size_t e = 0; e < loads.size(); ++e) add_checked(counts.total_, loads[e], e);
  return counts;
}

void Counts::resize(int num_ranks, int num_experts) {
  num_ranks_ = num_ranks;
  by_source_.assign(static_cast<std::size_t>(num_ranks) * static_cast<std::size_t>(num_experts), 0);
  loads_.assign(static_cast<std::size_t>(num_experts), 0);
  total_ = 0;
}

void Counts::sum_loads() {
  std::ranges::fill(loads_, 0);
  total_ = 0;
  // If no count is negative and all are below this, no sum can overflow, and the sums need no checks.
  constexpr std::int64_t kSmall = std::int64_t{1} << 32;
  std::int64_t bits = 0;
  for (std::int64_t count : by_source_) bits |= count;
  const bool small = bits >= 0 && bits < kSmall && std::ssize(by_source_) < kSmall / 4;
  for (std::size_t first = 0; first < by_source_.size(); first += loads_.size())
    for (std::size_t expert = 0; expert < loads_.size(); ++expert) {
      const std::int64_t count = by_source_[first + expert];
      if (!small) add_checked(total_, count, expert);
      loads_[expert] += count;
    }
  if (small) total_ = std::reduce(loads_.begin(), loads_.end());
}

}  // namespace evenkeel
