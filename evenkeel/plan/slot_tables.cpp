#include "evenkeel/plan/slot_tables.h"

#include <algorithm>
#include <tuple>

#include "evenkeel/base/check.h"

namespace evenkeel {

void SlotTables::make(const Counts& counts, const StepPlan& plan, const LayerPlacement& placement, RankId me,
                      std::int64_t slots) {
  transfers_.assign(plan.transfers().begin(), plan.transfers().end());
  std::ranges::sort(transfers_, {}, [](const Transfer& t) { return std::tuple(t.to, t.from, t.expert); });
  held_experts_.assign(static_cast<std::size_t>(plan.num_ranks() * slots), ExpertId(-1));
  RankId borrower(-1);
  for (std::int64_t slot = 0; const Transfer& transfer : transfers_) {
    slot = transfer.to == borrower ? slot + 1 : 0;
    borrower = transfer.to;
    EVENKEEL_CHECK(slot < slots);
    held_experts_[borrower.offset() * static_cast<std::size_t>(slots) + static_cast<std::size_t>(slot)] =
        transfer.expert;
  }
  make(counts, plan, placement, me, held_experts_, transfers_);
}

void SlotTables::make(const Counts& counts, const StepPlan& plan, const LayerPlacement& placement, RankId me,
                      std::span<const ExpertId> held_experts, std::span<const Transfer> sent) {
  const auto ranks = static_cast<std::size_t>(plan.num_ranks());
  const std::size_t slots = held_experts.size() / ranks;
  const std::int64_t here = std::ssize(placement.natives(me)) + static_cast<std::int64_t>(slots);
  read(sent, placement, me);
  deal_.make(counts, plan, me);
  slot_of_.resize(static_cast<std::size_t>(plan.num_experts()) * ranks);
  for (std::size_t i = 0; i < held_experts.size(); ++i)
    if (held_experts[i] != ExpertId(-1))
      slot_of_[held_experts[i].offset() * ranks + i / slots] = static_cast<std::int64_t>(i % slots);
  borrowed_slots_.clear();
  for (std::int64_t expert : borrowed)
    borrowed_slots_.push_back(slot_of_[static_cast<std::size_t>(expert) * ranks + me.offset()]);

  places_.clear();
  counts_.clear();
  moves_ = false;
  for (ExpertId expert : indices<ExpertId>(plan.num_experts())) {
    moves_ |= plan.splits(expert, placement);
    for (const Deal::Piece& piece : deal_.pieces(expert)) {
      const auto natives = placement.natives(piece.rank);
      const auto home = std::ranges::lower_bound(natives, expert);
      const std::int64_t at =
          home != natives.end() && *home == expert
              ? home - natives.begin()
              : std::ssize(natives) + slot_of_[expert.offset() * ranks + piece.rank.offset()];
      places_.push_back(static_cast<std::int64_t>(piece.rank.offset()) * here + at);
      counts_.push_back(piece.count);
    }
  }

  at_home_.assign(ranks, 0);
  in_slots_.assign(ranks, 0);
  for (std::size_t i = 0; i < deal_.experts_here().size(); ++i) {
    auto& arrived = placement.is_home(deal_.experts_here()[i], me) ? at_home_ : in_slots_;
    for (std::size_t source = 0; source < ranks; ++source) arrived[source] += deal_.arrivals(i)[source];
  }
}

}  // namespace evenkeel
