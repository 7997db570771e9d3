#include "tests/balance/cuda/host_plan.h"

namespace evenkeel::testing {

namespace {
std::size_t size(int n) {
  return static_cast<std::size_t>(n);
}
}  // namespace

FlatPlan::FlatPlan(int experts, int slots, int ranks)
    : segment_begin(size(experts) + 1),
      segment_rank(size(cuda::most_segments(slots, ranks))),
      segment_end(segment_rank.size()),
      transfer_expert(segment_rank.size()),
      transfer_from(segment_rank.size()),
      transfer_to(segment_rank.size()),
      rank_loads(size(ranks)) {}

cuda::PlanView FlatPlan::view() {
  return {segment_begin.data(),   segment_rank.data(),  segment_end.data(),
          transfer_expert.data(), transfer_from.data(), transfer_to.data(),
          &num_transfers,         rank_loads.data(),    &fell_back_to_ep};
}

FlatPlan plan_on_host(const Counts& counts, const LayerPlacement& placement, const PlannerOptions& options,
                      std::span<const std::int64_t> base_load, int most_borrowed) {
  return plan_with([](const auto& plan) { plan(cuda::HostTeam()); }, counts, placement, options, base_load,
                   most_borrowed);
}

FlatPlan flat(const StepPlan& plan, const LayerPlacement& placement) {
  const cuda::PlacementTables tables(placement);
  FlatPlan all(plan.num_experts(), tables.view().num_slots, plan.num_ranks());
  std::size_t at = 0;
  for (ExpertId expert : indices<ExpertId>(plan.num_experts())) {
    const std::size_t needed = at + plan.segments(expert).size();
    if (all.segment_rank.size() < needed) {
      all.segment_rank.resize(2 * needed);
      all.segment_end.resize(2 * needed);
    }
    for (const Segment& segment : plan.segments(expert)) {
      all.segment_rank[at] = segment.rank.value();
      all.segment_end[at++] = static_cast<std::int32_t>(segment.end);
    }
    all.segment_begin[expert.offset() + 1] = static_cast<std::int32_t>(at);
  }
  if (all.transfer_to.size() < plan.transfers().size()) {
    all.transfer_expert.resize(plan.transfers().size());
    all.transfer_from.resize(plan.transfers().size());
    all.transfer_to.resize(plan.transfers().size());
  }
  for (const Transfer& transfer : plan.transfers()) {
    const auto i = static_cast<std::size_t>(all.num_transfers++);
    all.transfer_expert[i] = transfer.expert.value();
    all.transfer_from[i] = transfer.from.value();
    all.transfer_to[i] = transfer.to.value();
  }
  for (std::size_t r = 0; r < all.rank_loads.size(); ++r)
    all.rank_loads[r] = static_cast<std::int32_t>(plan.rank_loads()[r]);
  return all;
}

}  // namespace evenkeel::testing
