#include "tests/balance/links_oracle.h"

#include <algorithm>
#include <vector>

namespace evenkeel {

namespace {

class EveryPlan {
 public:
  EveryPlan(const StepLinks& links, const Counts& counts, const LayerPlacement& placement,
            std::int64_t min_segment, double enough)
      : links_(links), counts_(counts), placement_(placement), min_segment_(min_segment), least_(enough) {
    const auto ranks = static_cast<std::size_t>(counts.num_ranks());
    loads_.assign(ranks, 0);
    quota_.assign(ranks, 0);
    rows_.assign(ranks * ranks, 0);
    transfers_.assign(ranks * ranks, 0);
  }

  double seconds() {
    place(ExpertId(0));
    return least_;
  }

 private:
  // Adding experts never makes a plan faster, so a partial plan that is already too slow is pruned.
  bool is_slow() const {
    return step_seconds(links_, std::ranges::max(loads_), rows_, transfers_) >= least_ * (1 - 1e-12);
  }

  void place(ExpertId expert) {
    if (is_slow()) return;
    if (expert.value() == counts_.num_experts()) {
      least_ = step_seconds(links_, std::ranges::max(loads_), rows_, transfers_);
      return;
    }
    split(expert, RankId(0), counts_.load(expert));
  }

  void split(ExpertId expert, RankId rank, std::int64_t rest) {
    if (rank.value() == counts_.num_ranks()) {
      if (rest == 0) next(expert);
      return;
    }
    const bool home = placement_.is_home(expert, rank);
    for (std::int64_t piece = 0; piece <= rest; ++piece) {
      if (!home && piece > 0 && piece < std::min(min_segment_, counts_.load(expert))) continue;
      quota_[rank.offset()] = piece;
      split(expert, RankId(rank.offset() + 1), rest - piece);
    }
    quota_[rank.offset()] = 0;
  }

  void next(ExpertId expert) {
    const auto loads = loads_, quota = quota_;
    const auto rows = rows_, transfers = transfers_;
    const std::size_t ranks = loads.size();
    std::vector<std::int64_t> open = quota;
    for (std::size_t r = 0; r < ranks; ++r) {
      loads_[r] += quota[r];
      if (quota[r] > 0 && !placement_.is_home(expert, RankId(r)))
        transfers_[placement_.owner(expert).offset() * ranks + r] += 1;
      open[r] -= std::min(quota[r], counts_.at(RankId(r), expert));
    }
    for (std::size_t from = 0, to = 0; from < ranks; ++from) {
      std::int64_t left = counts_.at(RankId(from), expert);
      left -= std::min(left, quota[from]);
      for (; left > 0; ++to) {
        const std::int64_t piece = std::min(left, open[to]);
        rows_[from * ranks + to] += static_cast<double>(piece);
        open[to] -= piece;
        if ((left -= piece) == 0) break;
      }
    }
    place(ExpertId(expert.offset() + 1));
    loads_ = loads, quota_ = quota, rows_ = rows, transfers_ = transfers;
  }

  const StepLinks& links_;
  const Counts& counts_;
  const LayerPlacement& placement_;
  std::int64_t min_segment_;
  double least_;
  std::vector<std::int64_t> loads_, quota_;
  std::vector<double> rows_, transfers_;
};

}  // namespace

double least_seconds(const StepLinks& links, const Counts& counts, const LayerPlacement& placement,
                     std::int64_t min_segment, double enough) {
  return EveryPlan(links, counts, placement, min_segment, enough).seconds();
}

}  // namespace evenkeel
