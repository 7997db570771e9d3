// The weights at home on a rank: the caller's tensors, and the order in which the products want them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "evenkeel/compute/expert_ffn.h"
#include "evenkeel/device/device.h"
#include "evenkeel/layer/internal/expert_parts.h"
#include "evenkeel/plan/placement.h"

namespace evenkeel::internal {

class NativeExperts {
 public:
  NativeExperts(const ExpertFfn& ffn, const LayerPlacement& placement, RankId me, bool with_backward);

  // `weights` in the order of placement.natives(me), whole; the tensors must stay as they are until the next
  // call.
  void set(std::span<const ExpertWeights> weights);

  bool is_native(ExpertId expert) const { return index_[expert.offset()] >= 0; }
  // Position among placement.natives(me).
  std::size_t index(ExpertId expert) const { return static_cast<std::size_t>(index_[expert.offset()]); }
  // Weights prepared for forward begin with those that recompute wants, and serve both passes.
  const std::byte* prepared(ExpertId expert, Pass pass) const;
  // By expert; empty where foreign.
  std::span<const ExpertParts> parts() const { return parts_; }

 private:
  // Of one expert's form.
  std::int64_t bytes_each(Pass pass) const;
  std::span<std::byte> form(std::size_t index, Pass pass) const;

  const ExpertFfn& ffn_;
  std::vector<ExpertId> experts_;
  std::vector<int> index_;          // [E], -1 where foreign
  std::vector<ExpertParts> parts_;  // [E]
  bool with_backward_;
  // Prepared forms, one expert behind the other, each on a boundary of 64 bytes.
  std::unique_ptr<MemoryRange> forward_;
  std::unique_ptr<MemoryRange> backward_;
};

}  // namespace evenkeel::internal
