#include "evenkeel/layer/cpu/internal/borrowed_experts.h"

#include <algorithm>

#include "evenkeel/base/bytes.h"
#include "evenkeel/base/check.h"
#include "evenkeel/layer/cpu/internal/native_experts.h"

namespace evenkeel::internal {

std::int64_t BorrowedExperts::bytes_each(std::span<const Pass> passes) const {
  std::int64_t bytes = 0;
  for (Pass pass : passes) bytes += whole_lines(ffn_.prepared_bytes(pass));
  return bytes;
}

void BorrowedExperts::fetch(const StepPlan& plan, std::span<const ExpertParts> natives,
                            std::span<const Pass> passes, WeightTransfer& transfer) {
  passes_ = passes;
  experts_.clear();
  prepared_ = arena_.allocate(transfer.borrows(plan) * bytes_each(passes), "borrowed weights");
  transfer.fetch(plan, natives, [&](ExpertId expert, const ExpertParts& parts) {
    if (!parts.front().empty()) experts_.push_back(expert);
    for (std::size_t i = 0; i < passes_.size(); ++i)
      ffn_.prepare(weights_of(parts), passes_[i], form(experts_.size() - 1, i));
  });
}

// Of one expert, for one of the passes.
std::span<std::byte> BorrowedExperts::form(std::size_t expert, std::size_t pass) const {
  const auto before =
      static_cast<std::int64_t>(expert) * bytes_each(passes_) + bytes_each(passes_.first(pass));
  return prepared_.bytes().subspan(static_cast<std::size_t>(before),
                                   static_cast<std::size_t>(whole_lines(ffn_.prepared_bytes(passes_[pass]))));
}

const std::byte* BorrowedExperts::prepared(ExpertId expert, Pass pass) const {
  const auto borrowed = std::ranges::find(experts_, expert);
  const auto asked = std::ranges::find(passes_, pass);
  EVENKEEL_CHECK(borrowed != experts_.end());
  if (asked == passes_.end()) return nullptr;
  return form(static_cast<std::size_t>(borrowed - experts_.begin()),
              static_cast<std::size_t>(asked - passes_.begin()))
      .data();
}

void BorrowedExperts::release() {
  experts_.clear();
  prepared_.release();
}

}  // namespace evenkeel::internal
