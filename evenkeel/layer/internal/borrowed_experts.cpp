#include "evenkeel/layer/internal/borrowed_experts.h"

#include <algorithm>

#include "evenkeel/base/check.h"
#include "evenkeel/layer/internal/native_experts.h"

namespace evenkeel::internal {

std::int64_t BorrowedExperts::bytes_each(std::span<const Pass> passes) const {
  std::int64_t bytes = 0;
  for (Pass pass : passes) bytes += Arena::rounded(ffn_.prepared_bytes(pass));
  return bytes;
}

void BorrowedExperts::fetch(const StepPlan& plan, std::span<const ExpertParts> natives,
                            std::span<const Pass> passes, WeightTransfer& transfer) {
  passes_ = passes;
  experts_.clear();
  prepared_ = arena_.allocate(transfer.borrows(plan) * bytes_each(passes), "borrowed weights");
  std::span<std::byte> rest = prepared_.bytes();
  transfer.fetch(plan, natives, [&](ExpertId expert, const ExpertParts& parts) {
    experts_.push_back(expert);
    for (Pass pass : passes_) {
      const auto bytes = static_cast<std::size_t>(Arena::rounded(ffn_.prepared_bytes(pass)));
      ffn_.prepare(weights_of(parts), pass, rest.first(bytes));
      rest = rest.subspan(bytes);
    }
  });
}

const std::byte* BorrowedExperts::prepared(ExpertId expert, Pass pass) const {
  const auto borrowed = std::ranges::find(experts_, expert);
  const auto asked = std::ranges::find(passes_, pass);
  EVENKEEL_CHECK(borrowed != experts_.end());
  if (asked == passes_.end()) return nullptr;
  const auto before = static_cast<std::size_t>(asked - passes_.begin());
  return prepared_.data() + (borrowed - experts_.begin()) * bytes_each(passes_) +
         bytes_each(passes_.first(before));
}

void BorrowedExperts::release() {
  experts_.clear();
  prepared_.release();
}

}  // namespace evenkeel::internal
