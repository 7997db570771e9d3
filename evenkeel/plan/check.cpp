#include "evenkeel/plan/check.h"

#include <fmt/format.h>

#include <algorithm>

namespace evenkeel {

namespace {

class Check {
 public:
  Check(const Counts& counts, const LayerPlacement& placement, const PlanRecord& plan)
      : counts_(counts), placement_(placement), plan_(plan) {}

  std::vector<std::string> run() {
    if (!same_shape()) return std::move(broken_);
    given_.assign(ranks(), 0);
    for (ExpertId expert : indices<ExpertId>(placement_.num_experts())) check_expert(expert);
    check_rank_loads();
    for (const Transfer& transfer : plan_.transfers) check_transfer(transfer);
    return std::move(broken_);
  }

 private:
  std::size_t ranks() const { return static_cast<std::size_t>(placement_.num_ranks()); }
  bool is_rank(RankId rank) const { return rank.value() >= 0 && rank.value() < placement_.num_ranks(); }

  template <class... Args>
  void report(fmt::format_string<Args...> sentence, Args&&... args) {
    broken_.push_back(fmt::format(sentence, std::forward<Args>(args)...));
  }

  bool same_shape() {
    const auto experts = static_cast<std::size_t>(placement_.num_experts());
    if (counts_.num_experts() != placement_.num_experts() || counts_.num_ranks() != placement_.num_ranks())
      report("counts have {} experts and {} ranks, the placement has {} and {}", counts_.num_experts(),
             counts_.num_ranks(), placement_.num_experts(), placement_.num_ranks());
    if (plan_.segments.size() != experts || plan_.rank_loads.size() != ranks())
      report("the plan has {} experts and {} ranks, the placement has {} and {}", plan_.segments.size(),
             plan_.rank_loads.size(), experts, ranks());
    return broken_.empty();
  }

  void check_expert(ExpertId expert) {
    const auto& segments = plan_.segments[expert.offset()];
    std::int64_t end = 0;
    for (const Segment& s : segments) {
      if (!is_rank(s.rank)) {
        report("expert {}: segment on rank {}, which is outside 0..{}", expert.value(), s.rank.value(),
               placement_.num_ranks() - 1);
        return;
      }
      if (s.end <= s.begin)
        report("expert {}: segment [{}, {}) is empty", expert.value(), s.begin, s.end);
      else
        given_[s.rank.offset()] += s.size();
      if (s.begin != end)
        report("expert {}: segment begins at {}, the one before ends at {}", expert.value(), s.begin, end);
      end = s.end;
      check_fetched(expert, s.rank);
    }
    if (end != counts_.load(expert))
      report("expert {}: segments cover {} of {} assignments", expert.value(), end, counts_.load(expert));
  }

  // A rank that computes an expert away from its homes needs its weights.
  void check_fetched(ExpertId expert, RankId rank) {
    if (placement_.is_home(expert, rank) || transfers_of(expert, rank) > 0) return;
    report("expert {}: rank {} computes it, has no copy and gets no transfer", expert.value(), rank.value());
  }

  std::ptrdiff_t transfers_of(ExpertId expert, RankId to) const {
    return std::ranges::count_if(plan_.transfers,
                                 [=](const Transfer& t) { return t.expert == expert && t.to == to; });
  }

  void check_rank_loads() {
    for (RankId rank : indices<RankId>(placement_.num_ranks()))
      if (plan_.rank_loads[rank.offset()] != given_[rank.offset()])
        report("rank {}: the plan gives it load {}, but its segments add up to {}", rank.value(),
               plan_.rank_loads[rank.offset()], given_[rank.offset()]);
  }

  void check_transfer(const Transfer& t) {
    const std::string name =
        fmt::format("transfer of expert {} from {} to {}", t.expert.value(), t.from.value(), t.to.value());
    if (t.expert.value() < 0 || t.expert.value() >= placement_.num_experts())
      return report("{}: no such expert", name);
    if (!is_rank(t.from) || !is_rank(t.to)) return report("{}: no such rank", name);
    if (placement_.owner(t.expert) != t.from)
      report("{}: the owner is rank {}", name, placement_.owner(t.expert).value());
    if (placement_.is_home(t.expert, t.to)) report("{}: the receiver has a copy", name);
    if (transfers_of(t.expert, t.to) > 1) report("{}: listed more than once", name);
    const auto& segments = plan_.segments[t.expert.offset()];
    if (std::ranges::none_of(segments, [&](const Segment& s) { return s.rank == t.to; }))
      report("{}: the receiver computes none of it", name);
  }

  const Counts& counts_;
  const LayerPlacement& placement_;
  const PlanRecord& plan_;
  std::vector<std::int64_t> given_;  // [P], recomputed
  std::vector<std::string> broken_;
};

}  // namespace

PlanRecord::PlanRecord(const StepPlan& plan)
    : transfers(plan.transfers().begin(), plan.transfers().end()),
      rank_loads(plan.rank_loads().begin(), plan.rank_loads().end()) {
  for (ExpertId expert : indices<ExpertId>(plan.num_experts()))
    segments.emplace_back(plan.segments(expert).begin(), plan.segments(expert).end());
}

std::vector<std::string> check_plan(const Counts& counts, const LayerPlacement& placement,
                                    const PlanRecord& plan) {
  return Check(counts, placement, plan).run();
}

}  // namespace evenkeel
