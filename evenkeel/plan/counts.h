// The input of the planners: how many assignments each rank's tokens make to each expert, in one step.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "evenkeel/base/index.h"

namespace evenkeel {

// counts[source rank][expert], and the experts' loads: the sums over source ranks. Reusable: resize() to the
// same shape allocates nothing.
class Counts {
 public:
  Counts() = default;
  Counts(int num_ranks, int num_experts) { resize(num_ranks, num_experts); }
  // Makes counts from loads whose source ranks are not known: num_ranks() is set, but has_sources() is false
  // and row() is empty.
  static Counts of_loads(std::span<const std::int64_t> loads, int num_ranks);

  // Sets every count to zero.
  void resize(int num_ranks, int num_experts);

  int num_ranks() const { return num_ranks_; }
  int num_experts() const { return static_cast<int>(loads_.size()); }
  bool has_sources() const { return !by_source_.empty(); }

  std::int64_t at(RankId source, ExpertId expert) const { return row(source)[expert.offset()]; }
  std::span<const std::int64_t> row(RankId source) const {
    if (!has_sources()) return {};
    return std::span(by_source_).subspan(source.offset() * loads_.size(), loads_.size());
  }
  // All rows, one after the other, for writing; call sum_loads() afterwards.
  std::span<std::int64_t> rows() { return by_source_; }
  std::span<const std::int64_t> rows() const { return by_source_; }

  // Recomputes loads and total from the rows. Throws InvalidArgument on a negative count or a total above
  // 2^63 - 1.
  void sum_loads();
  std::int64_t load(ExpertId expert) const { return loads_[expert.offset()]; }
  std::span<const std::int64_t> loads() const { return loads_; }
  std::int64_t total() const { return total_; }

 private:
  int num_ranks_ = 0;
  std::vector<std::int64_t> by_source_;  // [P][E]; empty where the sources are not known
  std::vector<std::int64_t> loads_;      // [E]
  std::int64_t total_ = 0;
};

}  // namespace evenkeel
