#include "tests/balance/level_oracle.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <span>
#include <vector>

namespace evenkeel {

namespace {

// The load of each rank; if slots are limited, followed by the number of experts each rank borrows.
using Loads = std::vector<std::int64_t>;
using Reached = std::map<Loads, int>;  // loads -> fewest transfers that lead to them

// Tries all ways to split the `rest` assignments of an expert over `rank` and the ranks after it.
void split(const Case& c, std::size_t expert, std::int64_t least, std::size_t rank, std::int64_t rest,
           int transfers, std::int64_t borrow_slots, Loads& loads, const std::function<void(int)>& found) {
  const auto ranks = static_cast<std::size_t>(c.num_ranks);
  if (rank == ranks) {
    if (rest == 0) found(transfers);
    return;
  }
  const auto& homes = c.homes[expert];
  const bool home = std::ranges::find(homes, static_cast<int>(rank)) != homes.end();
  for (std::int64_t piece = 0; piece <= rest; ++piece) {
    const bool borrowed = !home && piece > 0, counted = borrowed && loads.size() > ranks;
    if (borrowed && piece < least) continue;
    if (counted && loads[ranks + rank] == borrow_slots) continue;
    loads[rank] += piece;
    if (counted) ++loads[ranks + rank];
    split(c, expert, least, rank + 1, rest - piece, transfers + borrowed, borrow_slots, loads, found);
    loads[rank] -= piece;
    if (counted) --loads[ranks + rank];
  }
}

Reached reach_all(const Case& c, std::int64_t min_segment, std::int64_t borrow_slots) {
  const bool limited = borrow_slots < std::ssize(c.loads);
  Loads start(static_cast<std::size_t>(c.num_ranks) * (limited ? 2 : 1), 0);
  std::ranges::copy(c.base_load, start.begin());
  Reached reached{{start, 0}};
  for (std::size_t e = 0; e < c.loads.size(); ++e) {
    Reached next;
    for (const auto& [from, transfers] : reached) {
      Loads loads = from;
      split(c, e, std::min(min_segment, c.loads[e]), 0, c.loads[e], transfers, borrow_slots, loads,
            [&](int count) {
              const auto [at, added] = next.try_emplace(loads, count);
              if (!added) at->second = std::min(at->second, count);
            });
    }
    reached = std::move(next);
  }
  return reached;
}

}  // namespace

BestPlan best_plan(const Case& c, std::int64_t min_segment, std::int64_t borrow_slots) {
  BestPlan best{std::numeric_limits<std::int64_t>::max(), 0};
  for (const auto& [loads, transfers] : reach_all(c, min_segment, borrow_slots)) {
    const std::int64_t worst =
        std::ranges::max(std::span(loads).first(static_cast<std::size_t>(c.num_ranks)));
    if (worst < best.worst || (worst == best.worst && transfers < best.transfers)) best = {worst, transfers};
  }
  return best;
}

std::int64_t fewest_transfers(const Case& c, std::int64_t min_segment, std::int64_t worst) {
  std::int64_t fewest = std::numeric_limits<std::int64_t>::max();
  for (const auto& [loads, transfers] : reach_all(c, min_segment, std::ssize(c.loads)))
    if (std::ranges::max(loads) <= worst) fewest = std::min<std::int64_t>(fewest, transfers);
  return fewest;
}

}  // namespace evenkeel
