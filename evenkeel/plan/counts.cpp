#include "evenkeel/plan/counts.h"

#include <fmt/format.h>

#include <algorithm>

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

std::span<const std::int64_t> Counts::row(RankId source) const {
  if (!has_sources()) return {};
  return std::span(by_source_).subspan(source.offset() * loads_.size(), loads_.size());
}

void Counts::sum_loads() {
  std::fill(loads_.begin(), loads_.end(), 0);
  total_ = 0;
  for (std::size_t i = 0; i < by_source_.size(); ++i) {
    const std::size_t expert = i % loads_.size();
    add_checked(total_, by_source_[i], expert);
    loads_[expert] += by_source_[i];
  }
}

}  // namespace evenkeel
