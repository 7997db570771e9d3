#include "evenkeel/balance/held_slots.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "evenkeel/base/error.h"

namespace evenkeel {

namespace {

constexpr ExpertId kNone(-1);

PlannerOptions with_slots(PlannerOptions options, std::int64_t slots) {
  options.borrow_slots = slots;
  return options;
}

}  // namespace

HeldSlots::HeldSlots(LayerPlacement homes, const PlannerOptions& options,
                     std::int64_t renew_above_thousandths)
    : homes_(std::move(homes)), options_(options), renew_above_(renew_above_thousandths), held_(homes_) {
  if (options.kind != PlannerOptions::Kind::level)
    throw InvalidArgument("planner", std::string(name_of(options.kind)), "level, where slots stay");
  if (!homes_.has_single_homes())
    throw InvalidArgument("placement", "has copies of experts", "one home for each expert, where slots stay");
  if (options.borrow_slots < 1 || options.borrow_slots > homes_.num_experts())
    throw InvalidArgument("borrow_slots", fmt::format("{}", options.borrow_slots),
                          fmt::format("1..{}, where slots stay", homes_.num_experts()));
  if (renew_above_ < 1000)
    throw InvalidArgument("renew_above", fmt::format("{} thousandths", renew_above_), "1000 or more");
  free_ = make_planner(with_slots(options_, 0));
  for (std::int64_t slots = 1; slots < options_.borrow_slots; slots *= 2)
    renewing_.push_back(make_planner(with_slots(options_, slots)));
  renewing_.push_back(make_planner(options_));
  clear();
}

void HeldSlots::clear() {
  const auto ranks = static_cast<std::size_t>(homes_.num_ranks());
  slots_.assign(ranks * num_slots(), kNone);
  use_.assign(ranks, {});
  held_ = homes_;
  sent_.clear();
}

void HeldSlots::plan(const Counts& counts, StepPlan& plan) {
  sent_.clear();
  free_->plan(counts, held_, plan);
  find_use(plan);
  if (!is_level(counts, std::ranges::max(plan.rank_loads()))) renew(counts, plan);
}

bool HeldSlots::is_level(const Counts& counts, std::int64_t worst) const {
  __extension__ using Wide = __int128;
  return Wide{worst} * counts.num_ranks() * 1000 <= Wide{renew_above_} * counts.total();
}

void HeldSlots::find_use(const StepPlan& plan) {
  for (RankId rank : indices<RankId>(homes_.num_ranks())) {
    std::vector<Use>& uses = use_[rank.offset()];
    uses.clear();
    for (ExpertId expert : slots(rank)) {
      if (expert == kNone) continue;
      std::int64_t load = 0;
      for (const Segment& segment : plan.segments(expert))
        if (segment.rank == rank) load += segment.size();
      uses.push_back({expert, load});
    }
    std::ranges::stable_sort(uses, std::greater(), &Use::load);
  }
}

// The homes, and at most so many of the most used in each rank's slots.
LayerPlacement HeldSlots::with_copies(std::size_t most) const {
  std::vector<std::vector<int>> homes(static_cast<std::size_t>(homes_.num_experts()));
  for (ExpertId expert : indices<ExpertId>(homes_.num_experts()))
    homes[expert.offset()] = {homes_.owner(expert).value()};
  for (std::size_t rank = 0; rank < use_.size(); ++rank)
    for (std::size_t i = 0; i < std::min(most, use_[rank].size()); ++i)
      homes[use_[rank][i].expert.offset()].push_back(static_cast<int>(rank));
  return LayerPlacement(homes, homes_.num_ranks());
}

void HeldSlots::renew(const Counts& counts, StepPlan& plan) {
  const std::size_t all = num_slots();
  const auto value = [&](const StepPlan& each) {
    std::int64_t sent = 0;
    for (const Transfer& transfer : each.transfers())
      sent += std::ranges::find(slots(transfer.to), transfer.expert) == slots(transfer.to).end();
    const std::int64_t worst = std::ranges::max(each.rank_loads());
    return is_level(counts, worst) ? std::tuple(std::int64_t{0}, sent, worst)
                                   : std::tuple(worst, sent, worst);
  };
  auto best = value(plan);
  std::size_t kept = all;
  for (std::size_t i = 0; i < renewing_.size(); ++i) {
    const std::size_t renewed = std::min(std::size_t{1} << i, all);
    renewing_[i]->plan(counts, with_copies(all - renewed), tried_);
    const auto now = value(tried_);
    if (now >= best) continue;
    best = now;
    kept = all - renewed;
    std::swap(plan, tried_);
  }
  if (kept < all) settle(plan, kept);
}

// Puts what the plan sends into free slots, then into those of what it uses least.
void HeldSlots::settle(const StepPlan& plan, std::size_t kept) {
  for (std::vector<Use>& uses : use_)  // what is wanted first
    for (std::size_t i = kept; i < uses.size(); ++i) uses[i].load = 0;
  for (const Transfer& transfer : plan.transfers()) {
    std::vector<Use>& uses = use_[transfer.to.offset()];
    const auto known = std::ranges::find(uses, transfer.expert, &Use::expert);
    if (known != uses.end()) known->load = -1;  // wanted again
  }
  for (const Transfer& transfer : plan.transfers()) {
    const auto lying = std::span(slots_).subspan(transfer.to.offset() * num_slots(), num_slots());
    if (std::ranges::find(lying, transfer.expert) != lying.end()) continue;
    auto slot = std::ranges::find(lying, kNone);
    if (slot == lying.end()) {
      std::vector<Use>& uses = use_[transfer.to.offset()];
      const auto unwanted =
          std::ranges::find(uses.rbegin(), uses.rend() - static_cast<std::ptrdiff_t>(kept), 0, &Use::load);
      slot = std::ranges::find(lying, unwanted->expert);
      unwanted->load = -1;
    }
    *slot = transfer.expert;
    sent_.push_back(transfer);
  }
  for (RankId rank : indices<RankId>(homes_.num_ranks())) {
    use_[rank.offset()].clear();
    for (ExpertId expert : slots(rank))
      if (expert != kNone) use_[rank.offset()].push_back({expert});
  }
  held_ = with_copies(num_slots());
}

}  // namespace evenkeel
