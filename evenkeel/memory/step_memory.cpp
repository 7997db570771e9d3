#include "evenkeel/memory/step_memory.h"

#include <algorithm>
#include <limits>

#include "evenkeel/base/check.h"

namespace evenkeel {

namespace {

// Shares of the room that chunks may use, the rest being kept, in eighths.
constexpr int kShares[] = {8, 6, 4, 2, 1};
constexpr int kShareUnit = 8;

std::int64_t passing_forward(const ChunkShape& shape, const ChunkLoad& load) {
  return forward_bytes(shape, load, false);
}

std::int64_t recomputing(const ChunkShape& shape, const ChunkLoad& load) {
  return backward_bytes(shape, load, false);
}

std::int64_t recomputing_whole(const ChunkShape& shape, const ChunkLoad& load) {
  return std::max(forward_bytes(shape, load, true), backward_bytes(shape, load, true));
}

}  // namespace

StepMemory::StepMemory(const ChunkShape& shape, const MemoryOptions& options, std::int64_t units)
    : shape_(shape), options_(options), units_(units), plain_(make_planner({PlannerOptions::Kind::ep})) {}

void StepMemory::load_blocks(const BlockTable& table, std::span<const RankRoom> rooms,
                             const LayerPlacement& placement, const StepPlan& plan) {
  tokens_.clear();
  for (const RankRoom& room : rooms) tokens_.push_back(room.tokens);
  loads_.build(table, plan, placement, tokens_, shape_.top_k);
  borrow(plan, placement);
}

// What the plan has each rank hold of other ranks' experts, whatever the chunks.
void StepMemory::borrow(const StepPlan& plan, const LayerPlacement& placement) {
  const auto ranks = static_cast<std::size_t>(plan.num_ranks());
  forward_fixed_.assign(ranks, 0);
  for (const Transfer& transfer : plan.transfers()) ++forward_fixed_[transfer.to.offset()];
  transfers_ = std::ranges::max(forward_fixed_);
  returns_gradients_ = plan.spilled() || !placement.has_single_homes();
  backward_fixed_ = forward_fixed_;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    forward_fixed_[rank] *= shape_.weight_bytes;
    backward_fixed_[rank] *= shape_.weight_bytes + shape_.gradient_bytes;
  }
  if (placement.has_single_homes()) return;
  for (ExpertId expert : indices<ExpertId>(plan.num_experts())) {
    const auto homes = placement.homes(expert);
    for (RankId home : homes.subspan(1)) backward_fixed_[home.offset()] += shape_.gradient_bytes;
  }
}

void StepMemory::choose_forward(const BlockTable& table, std::span<const RankRoom> rooms,
                                const LayerPlacement& placement, StepPlan& plan) {
  forget_best();
  load_blocks(table, rooms, placement, plan);
  consider_forward(rooms);
  const bool is_best = best_.chunks.size() == 1 && best_.chunks.front().kept;
  if (plan.spilled() && !is_best) {
    const double spilled = best_.seconds;
    table.sum(counts_);
    plain_->plan(counts_, placement, plain_plan_);
    load_blocks(table, rooms, placement, plain_plan_);
    consider_forward(rooms);
    if (best_.seconds < spilled) std::swap(plan, plain_plan_);
  }
  take_best();
}

void StepMemory::consider_forward(std::span<const RankRoom> rooms) {
  const bool keeps = shape_.with_backward &&
                     (options_.recompute == Recompute::none || options_.recompute == Recompute::automatic);
  if (keeps && keeps_all(rooms)) {
    way_.chunks.assign(1, {0, units_, true});
    return take_if_faster();
  }
  if (options_.recompute == Recompute::none) return;
  for (int share : kShares) {
    limits_.clear();
    for (std::size_t rank = 0; rank < rooms.size(); ++rank)
      limits_.push_back((rooms[rank].gap - forward_fixed_[rank]) * share / kShareUnit);
    way_.chunks.clear();
    if (!cut_into_chunks(shape_, loads_, passing_forward, limits_, 0, units_, way_.chunks)) return;
    if (keeps) keep_what_fits(rooms);
    take_if_faster();
    if (!keeps) return;
  }
}

// Whether the whole step fits as one kept chunk.
bool StepMemory::keeps_all(std::span<const RankRoom> rooms) const {
  for (RankId rank : indices<RankId>(loads_.num_ranks())) {
    const RankRoom& room = rooms[rank.offset()];
    const ChunkLoad load = loads_.load(rank, 0, loads_.num_blocks());
    if (held_bytes(shape_, load) > std::min(room.held, room.gap - room.least) ||
        forward_bytes(shape_, load, true) + forward_fixed_[rank.offset()] > room.gap ||
        backward_bytes(shape_, load, true) + backward_fixed_[rank.offset()] > room.gap)
      return false;
  }
  return true;
}

// Keeps the first chunks, as long as those behind them have their room, and so has their own backward.
void StepMemory::keep_what_fits(std::span<const RankRoom> rooms) {
  const std::int64_t block_units = units_ / loads_.num_blocks();
  kept_.assign(rooms.size(), 0);
  for (Chunk& chunk : way_.chunks) {
    if (chunk.begin % block_units != 0 || chunk.end % block_units != 0) return;
    const auto begin = static_cast<int>(chunk.begin / block_units);
    const auto end = static_cast<int>(chunk.end / block_units);
    for (RankId rank : indices<RankId>(loads_.num_ranks())) {
      const RankRoom& room = rooms[rank.offset()];
      const ChunkLoad load = loads_.load(rank, begin, end);
      const std::int64_t before = kept_[rank.offset()];
      const std::int64_t forward_room = room.gap - forward_fixed_[rank.offset()];
      const std::int64_t most_held =
          std::min({room.held, room.gap - room.least, forward_room - limits_[rank.offset()]});
      if (before + held_bytes(shape_, load) > most_held ||
          before + forward_bytes(shape_, load, true) > forward_room ||
          before + backward_bytes(shape_, load, true) + backward_fixed_[rank.offset()] > room.gap)
        return;
    }
    for (RankId rank : indices<RankId>(loads_.num_ranks()))
      kept_[rank.offset()] += held_bytes(shape_, loads_.load(rank, begin, end));
    chunk.kept = true;
  }
}

void StepMemory::choose_backward(const BlockTable& table, std::span<const RankRoom> rooms,
                                 const LayerPlacement& placement, StepPlan& plan) {
  forget_best();
  load_blocks(table, rooms, placement, plan);
  consider_backward(rooms);
  if (plan.spilled() && best_.chunks.size() != 1) {
    const double spilled = best_.seconds;
    table.sum(counts_);
    plain_->plan(counts_, placement, plain_plan_);
    load_blocks(table, rooms, placement, plain_plan_);
    consider_backward(rooms);
    if (best_.seconds < spilled) std::swap(plan, plain_plan_);
  }
  take_best();
}

bool StepMemory::cut_backward(const BlockTable& table, std::span<const RankRoom> rooms,
                              const LayerPlacement& placement, const StepPlan& plan) {
  forget_best();
  load_blocks(table, rooms, placement, plan);
  consider_backward(rooms);
  if (best_.seconds == std::numeric_limits<double>::infinity()) return false;
  take_best();
  return true;
}

void StepMemory::consider_backward(std::span<const RankRoom> rooms) {
  limits_.clear();
  for (std::size_t rank = 0; rank < rooms.size(); ++rank) {
    limits_.push_back(rooms[rank].gap - backward_fixed_[rank]);
    // Gradients that come home are added one at a time, when the chunks are gone.
    if (returns_gradients_ && limits_.back() < shape_.gradient_bytes) return;
  }
  const LoadBytes bytes = options_.recompute == Recompute::whole ? recomputing_whole : recomputing;
  way_.chunks.clear();
  if (cut_into_chunks(shape_, loads_, bytes, limits_, 0, units_, way_.chunks)) take_if_faster();
}

void StepMemory::forget_best() {
  best_.chunks.clear();
  best_.seconds = std::numeric_limits<double>::infinity();
}

void StepMemory::take_if_faster() {
  way_.seconds = step_seconds(shape_, options_.cost, loads_, way_.chunks, units_, transfers_);
  if (way_.seconds < best_.seconds) std::swap(way_, best_);
}

void StepMemory::take_best() {
  EVENKEEL_CHECK(best_.seconds < std::numeric_limits<double>::infinity());
  std::swap(chunks_, best_.chunks);
}

}  // namespace evenkeel
