// The groups of rows that one call of the experts is given: which positions of a chunk, with which weights,
// and where their activations are.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "evenkeel/compute/expert_ffn.h"
#include "evenkeel/exchange/dispatched.h"
#include "evenkeel/exchange/result_rows.h"
#include "evenkeel/layer/cpu/internal/borrowed_experts.h"
#include "evenkeel/layer/cpu/internal/native_experts.h"
#include "evenkeel/layer/cpu/internal/saved_activations.h"

namespace evenkeel::internal {

class ExpertGroups {
 public:
  ExpertGroups(const NativeExperts& natives, const BorrowedExperts& borrowed, int num_experts);

  // Forward: the positions whose results wait; those of the present range.
  void collect_waiting(const Dispatched& dispatched, const ResultRows& rows, const SavedActivations& saved);
  void collect_range(const Dispatched& dispatched, const ResultRows& rows, const SavedActivations& saved);
  // Backward: all positions of a chunk. What was not saved is computed again.
  void collect_backward(const Dispatched& dispatched, const SavedActivations& saved);

  std::span<ExpertGroup> groups() { return groups_; }
  // Of each group.
  std::span<const ExpertId> experts() const { return experts_; }

 private:
  void clear();
  void add(ExpertId expert, std::int64_t begin, std::int64_t end, Pass pass, std::byte* saved);
  const std::byte* prepared(ExpertId expert, Pass pass) const;

  const NativeExperts& natives_;
  const BorrowedExperts& borrowed_;
  std::vector<ExpertGroup> groups_;
  std::vector<ExpertId> experts_;
};

}  // namespace evenkeel::internal
