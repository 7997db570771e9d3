#include "evenkeel/balance/held_slots.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <tuple>
#include <utility>

#include "evenkeel/base/error.h"

namespace evenkeel {

namespace {

constexpr ExpertId kNone(-1);

// How many candidates one swap considers: experts with the most load on the worst rank, and least loaded
// ranks.
constexpr std::size_t kExperts = 2, kRanks = 4;

std::int64_t load_at(const StepPlan& plan, ExpertId expert, RankId rank) {
  std::int64_t load = 0;
  for (const Segment& segment : plan.segments(expert))
    if (segment.rank == rank) load += segment.size();
  return load;
}

PlannerOptions with_slots(PlannerOptions options, std::int64_t slots) {
  options.borrow_slots = slots;
  return options;
}

}  // namespace

HeldSlots::HeldSlots(LayerPlacement homes, const PlannerOptions& options,
                     std::int64_t renew_above_thousandths)
    : homes_(std::move(homes)), options_(options), renew_above_(renew_above_thousandths), held_(homes_) {
  if (options.kind != PlannerOptions::Kind::level)
    throw InvalidArgument("planner", std::string(name_of(options.kind)),
                          "level, if borrowed experts stay in slots between steps");
  if (!homes_.has_single_homes())
    throw InvalidArgument("placement", "has copies of experts",
                          "one home for each expert, if borrowed experts stay in slots between steps");
  if (options.borrow_slots < 1 || options.borrow_slots > homes_.num_experts())
    throw InvalidArgument(
        "borrow_slots", fmt::format("{}", options.borrow_slots),
        fmt::format("1..{}, if borrowed experts stay in slots between steps", homes_.num_experts()));
  if (renew_above_ < 1000)
    throw InvalidArgument("renew_above", fmt::format("{} thousandths", renew_above_), "1000 or more");
  keep_planner_ = make_planner(with_slots(options_, 0));
  refill_planner_ = make_planner(options_);
  clear();
}

void HeldSlots::clear() {
  slots_.assign(static_cast<std::size_t>(homes_.num_ranks()) * num_slots(), kNone);
  held_ = homes_;
  sent_.clear();
}

void HeldSlots::plan(const Counts& counts, StepPlan& plan) {
  sent_.clear();
  keep_planner_->plan(counts, held_, plan);
  if (excess(counts, plan) > 0) renew(counts, plan);
}

// A placement of the homes, and of the experts in these slots as copies.
LayerPlacement HeldSlots::placement_with(const std::vector<ExpertId>& slots) const {
  std::vector<std::vector<int>> homes(static_cast<std::size_t>(homes_.num_experts()));
  for (ExpertId expert : indices<ExpertId>(homes_.num_experts()))
    homes[expert.offset()] = {homes_.owner(expert).value()};
  for (std::size_t i = 0; i < slots.size(); ++i)
    if (slots[i] != kNone) homes[slots[i].offset()].push_back(static_cast<int>(i / num_slots()));
  return LayerPlacement(homes, homes_.num_ranks());
}

void HeldSlots::renew(const Counts& counts, StepPlan& plan) {
  using Value = std::tuple<std::int64_t, std::int64_t, std::int64_t>;
  std::vector<ExpertId> best = slots_;
  Value least{std::numeric_limits<std::int64_t>::max(), 0, 0};
  // Prefers plans within renew_above; among these, the one that sends the fewest weights.
  const auto take_if_better = [&](StepPlan& trial, std::vector<ExpertId> slots) {
    const std::int64_t worst = std::ranges::max(trial.rank_loads()), sent = std::ssize(sent_for(slots));
    const Value value{excess(counts, trial) > 0 ? worst : 0, sent, worst};
    if (value >= least) return;
    least = value;
    best = std::move(slots);
    std::swap(best_plan_, trial);
  };
  std::vector<ExpertId> swapped = slots_;
  StepPlan one_by_one = plan;
  take_if_better(plan, slots_);
  if (held_ != homes_) {
    swap_slots(counts, swapped, one_by_one);
    take_if_better(one_by_one, std::move(swapped));
  }
  refill_planner_->plan(counts, homes_, trial_);
  take_if_better(trial_, slots_for(trial_));
  std::swap(plan, best_plan_);
  sent_ = sent_for(best);
  slots_ = std::move(best);
  held_ = placement_with(slots_);
}

// The transfers of experts that these slots hold and the present slots of the same rank do not.
std::vector<Transfer> HeldSlots::sent_for(const std::vector<ExpertId>& slots) const {
  std::vector<Transfer> sent;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    const RankId to(static_cast<int>(i / num_slots()));
    const auto held_experts = this->slots(to);
    if (slots[i] != kNone && std::ranges::find(held_experts, slots[i]) == held_experts.end())
      sent.push_back({slots[i], homes_.owner(slots[i]), to});
  }
  return sent;
}

// Takes load off overloaded ranks, each time by the one swap that takes off the most.
void HeldSlots::swap_slots(const Counts& counts, std::vector<ExpertId>& slots, StepPlan& plan) {
  std::vector<ExpertId> best_slots;
  StepPlan best_plan;
  for (std::int64_t left = excess(counts, plan); left > 0;) {
    std::int64_t best = left;
    for (const auto& [slot, expert] : swaps(plan, slots)) {
      const ExpertId was = std::exchange(slots[slot], expert);
      keep_planner_->plan(counts, placement_with(slots), trial_);
      if (const std::int64_t now = excess(counts, trial_); now < best) {
        best = now;
        best_slots = slots;
        std::swap(best_plan, trial_);
      }
      slots[slot] = was;
      if (best == 0) break;
    }
    if (best == left) return;
    left = best;
    slots = best_slots;
    std::swap(plan, best_plan);
  }
}

// Swaps to try: experts with the most load on the worst rank, each into the least used slot of one of the
// least loaded ranks.
std::vector<HeldSlots::Swap> HeldSlots::swaps(const StepPlan& plan,
                                              const std::vector<ExpertId>& slots) const {
  const auto loads = plan.rank_loads();
  const RankId worst(static_cast<int>(std::ranges::max_element(loads) - loads.begin()));
  std::vector<std::pair<std::int64_t, ExpertId>> there;
  for (ExpertId expert : indices<ExpertId>(plan.num_experts()))
    if (const std::int64_t load = load_at(plan, expert, worst); load > 0) there.emplace_back(load, expert);
  std::ranges::sort(there, std::greater());
  there.resize(std::min(kExperts, there.size()));
  std::vector<RankId> ranks;
  for (RankId rank : indices<RankId>(loads.size())) ranks.push_back(rank);
  std::ranges::stable_sort(ranks, {}, [&](RankId rank) { return loads[rank.offset()]; });
  ranks.resize(std::min(kRanks, ranks.size() - 1));

  std::vector<Swap> found;
  for (const RankId rank : ranks) {
    const auto held_experts = of_rank(slots, rank);
    const auto use = [&](ExpertId expert) { return expert == kNone ? -1 : load_at(plan, expert, rank); };
    const auto slot = std::ranges::min_element(held_experts, {}, use) - held_experts.begin();
    for (const auto& [load, expert] : there)
      if (!homes_.is_home(expert, rank) && std::ranges::find(held_experts, expert) == held_experts.end())
        found.push_back({rank.offset() * num_slots() + static_cast<std::size_t>(slot), expert});
  }
  return found;
}

// The assignments above the limit of a rank, which is renew_above times the mean, summed over ranks.
std::int64_t HeldSlots::excess(const Counts& counts, const StepPlan& plan) const {
  __extension__ using Wide = __int128;
  const auto most =
      static_cast<std::int64_t>(Wide{renew_above_} * counts.total() / (1000 * counts.num_ranks()));
  std::int64_t above = 0;
  for (const std::int64_t load : plan.rank_loads()) above += std::max<std::int64_t>(0, load - most);
  return above;
}

// The slots after a plan that fills them anew: an expert stays in its slot if the plan borrows it, or does
// not need the slot.
std::vector<ExpertId> HeldSlots::slots_for(const StepPlan& plan) const {
  std::vector<ExpertId> slots = slots_;
  const auto is_wanted = [&](ExpertId expert, RankId rank) {
    return std::ranges::any_of(plan.transfers(),
                               [&](const Transfer& t) { return t.expert == expert && t.to == rank; });
  };
  for (const Transfer& transfer : plan.transfers()) {
    const auto held_experts = std::span(slots).subspan(transfer.to.offset() * num_slots(), num_slots());
    if (std::ranges::find(held_experts, transfer.expert) != held_experts.end()) continue;
    auto slot = std::ranges::find(held_experts, kNone);
    if (slot == held_experts.end())
      slot = std::ranges::find_if(held_experts,
                                  [&](ExpertId expert) { return !is_wanted(expert, transfer.to); });
    *slot = transfer.expert;
  }
  return slots;
}

}  // namespace evenkeel
