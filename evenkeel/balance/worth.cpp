#include "evenkeel/balance/worth.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

namespace evenkeel {

double seconds_gained(const Counts& counts, const LayerPlacement& placement, const StepPlan& plan,
                      const SpillCosts& costs, std::span<const std::int64_t> base_load) {
  if (!plan.spilled()) return 0;
  const auto ranks = static_cast<std::size_t>(plan.num_ranks());
  std::vector<std::int64_t> at_home(base_load.begin(), base_load.end()), planned = at_home;
  std::vector<std::int64_t> sends(ranks), receives(ranks);
  at_home.resize(ranks);
  planned.resize(ranks);
  std::ranges::transform(planned, plan.rank_loads(), planned.begin(), std::plus());
  for (ExpertId expert : indices<ExpertId>(counts.num_experts())) {
    const auto homes = placement.homes(expert);
    const auto copies = static_cast<std::int64_t>(homes.size());
    for (RankId home : homes) at_home[home.offset()] += (counts.load(expert) + copies - 1) / copies;
  }
  for (const Transfer& transfer : plan.transfers()) {
    ++sends[transfer.from.offset()];
    ++receives[transfer.to.offset()];
  }
  const std::int64_t saved = std::ranges::max(at_home) - std::ranges::max(planned);
  const std::int64_t travelling = std::max(std::ranges::max(sends), std::ranges::max(receives));
  return static_cast<double>(saved) * costs.seconds_per_assignment -
         static_cast<double>(travelling) * costs.seconds_per_transfer - costs.seconds_per_step;
}

}  // namespace evenkeel
