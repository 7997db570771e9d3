#include "evenkeel/layer/cpu/internal/prepared_experts.h"

#include <algorithm>

#include "evenkeel/base/bytes.h"
#include "evenkeel/base/check.h"
#include "evenkeel/layer/internal/expert_parts.h"

namespace evenkeel::internal {

PreparedExperts::PreparedExperts(const ExpertFfn& ffn, Arena& arena, const LayerPlacement& placement,
                                 RankId me, bool with_backward)
    : ffn_(ffn), arena_(arena), parts_(static_cast<std::size_t>(placement.num_experts())) {
  natives_.experts.assign(placement.natives(me).begin(), placement.natives(me).end());
  natives_.passes = with_backward ? std::span<const Pass>(kBackwardWhole) : kForward;
  native_memory_ = Device::cpu().memory().reserve(bytes_each(natives_.passes) * std::ssize(natives_.experts),
                                                  MemorySource::Commit::now);
  natives_.memory = native_memory_->begin();
  borrowed_.experts.reserve(parts_.size());
}

void PreparedExperts::set_natives(std::span<const ExpertWeights> weights) {
  for (std::size_t i = 0; i < weights.size(); ++i) {
    parts_[natives_.experts[i].offset()] = parts_of(weights[i], ffn_.shape());
    prepare(natives_, i, weights[i]);
  }
}

void PreparedExperts::borrow(const StepPlan& plan, std::span<const Pass> passes, WeightTransfer& transfer) {
  borrowed_memory_ = arena_.allocate(transfer.borrows(plan) * bytes_each(passes), "borrowed weights");
  borrowed_.experts.clear();
  borrowed_.passes = passes;
  borrowed_.memory = borrowed_memory_.data();
  transfer.fetch(plan, parts_, [&](ExpertId expert, const ExpertParts& parts) {
    if (!parts.front().empty()) borrowed_.experts.push_back(expert);
    prepare(borrowed_, borrowed_.experts.size() - 1, weights_of(parts));
  });
}

void PreparedExperts::give_back() {
  borrowed_.experts.clear();
  borrowed_memory_.release();
}

std::int64_t PreparedExperts::bytes_each(std::span<const Pass> passes) const {
  std::int64_t bytes = 0;
  for (Pass pass : passes) bytes += whole_lines(ffn_.prepared_bytes(pass));
  return bytes;
}

// Weights prepared for forward begin with the bytes that recompute needs, so native experts use one copy.
const std::byte* PreparedExperts::of(ExpertId expert, Pass pass) const {
  const bool is_native = std::ranges::binary_search(natives_.experts, expert);
  if (is_native && pass == Pass::recompute) pass = Pass::forward;
  const Packed& packed = is_native ? natives_ : borrowed_;
  const auto found = std::ranges::find(packed.experts, expert);
  const auto asked = std::ranges::find(packed.passes, pass);
  EVENKEEL_CHECK(found != packed.experts.end());
  if (asked == packed.passes.end()) return nullptr;
  return form(packed, static_cast<std::size_t>(found - packed.experts.begin()),
              static_cast<std::size_t>(asked - packed.passes.begin()))
      .data();
}

std::span<std::byte> PreparedExperts::form(const Packed& packed, std::size_t index, std::size_t pass) const {
  const std::int64_t before =
      static_cast<std::int64_t>(index) * bytes_each(packed.passes) + bytes_each(packed.passes.first(pass));
  return {packed.memory + before,
          static_cast<std::size_t>(whole_lines(ffn_.prepared_bytes(packed.passes[pass])))};
}

void PreparedExperts::prepare(const Packed& packed, std::size_t index, const ExpertWeights& weights) const {
  for (std::size_t pass = 0; pass < packed.passes.size(); ++pass)
    ffn_.prepare(weights, packed.passes[pass], form(packed, index, pass));
}

}  // namespace evenkeel::internal
