#include "evenkeel/balance/predicted_step.h"

#include <algorithm>
#include <vector>

#include "evenkeel/plan/deal.h"

namespace evenkeel {

PredictedStep predict_step(const StepLinks& links, const Counts& counts, const StepPlan& plan) {
  const auto ranks = static_cast<std::size_t>(counts.num_ranks());
  std::vector<double> rows(ranks * ranks), transfers(ranks * ranks);
  Deal deal;
  for (RankId from : indices<RankId>(counts.has_sources() ? ranks : 0)) {
    deal.make(counts, plan, from);
    for (std::size_t to = 0; to < ranks; ++to)
      rows[from.offset() * ranks + to] = static_cast<double>(deal.sent()[to]);
  }
  for (const Transfer& t : plan.transfers()) transfers[t.from.offset() * ranks + t.to.offset()] += 1;

  PredictedStep step{.seconds = step_seconds(links, std::ranges::max(plan.rank_loads()), rows, transfers)};
  const double borrowed = step_parts(links.machine, links.expert, links.backward).borrowed_bytes;
  for (RankId from : indices<RankId>(ranks))
    for (RankId to : indices<RankId>(ranks)) {
      if (links.topology.same_node(from, to)) continue;
      step.row_bytes_across += rows[from.offset() * ranks + to.offset()] * links.row_bytes;
      step.weight_bytes_across += transfers[from.offset() * ranks + to.offset()] * borrowed;
    }
  return step;
}

}  // namespace evenkeel
