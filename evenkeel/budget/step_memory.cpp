#include "evenkeel/budget/step_memory.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "evenkeel/base/check.h"
#include "evenkeel/budget/chunk_estimate.h"

namespace evenkeel {

namespace {

std::int64_t passing_forward(const ChunkShape& shape, const ChunkLoad& load) {
  return forward_bytes(shape, load, 0);
}

std::int64_t recomputing_whole(const ChunkShape& shape, const ChunkLoad& load) {
  return std::max(forward_bytes(shape, load, load.positions_here),
                  backward_bytes(shape, load, load.positions_here));
}

LoadBytes backward_chunk_bytes(const MemoryOptions& options) {
  return options.recompute == Recompute::whole ? recomputing_whole : recompute_bytes;
}

}  // namespace

StepMemory::StepMemory(const ChunkShape& shape, const MemoryOptions& options, std::int64_t units)
    : least_(shape),
      shape_(with_workspaces(shape, std::numeric_limits<std::int64_t>::max())),
      options_(options),
      units_(units),
      plain_planner_(make_planner({PlannerOptions::Kind::ep})),
      foreign_(shape_, options.recompute),
      cut_(shape_, options_, loads_, units) {
  for (auto* by_rank : {&tokens_, &limits_, &kept_, &kept_with_})
    by_rank->reserve(static_cast<std::size_t>(shape.num_ranks));
  for (Way* way : {&given_, &plain_, &tried_}) way->chunks.reserve(static_cast<std::size_t>(units));
}

// Workspaces are the same on all ranks: what the one with the least to spare can have.
void StepMemory::load_blocks(const BlockTable& table, std::span<const RankMemory> memories,
                             const LayerPlacement& placement, const StepPlan& plan) {
  std::int64_t spare = std::numeric_limits<std::int64_t>::max();
  for (const RankMemory& memory : memories) spare = std::min(spare, memory.gap - memory.least);
  shape_ = with_workspaces(least_, spare);
  tokens_.clear();
  for (const RankMemory& memory : memories) tokens_.push_back(memory.tokens);
  loads_.read(table, placement, tokens_, shape_.top_k);
  if (!placement.has_single_homes()) plain_plan_.begin(placement);  // takes its memory before it is wanted
  follow(plan, placement);
}

void StepMemory::follow(const StepPlan& plan, const LayerPlacement& placement) {
  loads_.follow(plan);
  foreign_.read(plan, placement);
}

// Where each expert has one home, plain EP needs no plan to be known.
void StepMemory::follow_plain(const Counts& counts, const LayerPlacement& placement) {
  if (!placement.has_single_homes()) {
    plain_planner_->plan(counts, placement, plain_plan_);
    follow(plain_plan_, placement);
  } else {
    loads_.stay_home(counts);
    foreign_.clear();
  }
}

// Of what the planner's plan does not keep, backward may go under plain EP.
StepMemory::Choice StepMemory::choose_forward(const BlockTable& table, const Counts& counts,
                                              std::span<const RankMemory> memories,
                                              const LayerPlacement& placement, const StepPlan& plan) {
  load_blocks(table, memories, placement, plan);
  StepReason reason = reason_of_plan(plan.spilled());
  if (keeps() && cuts_exactly() && weights_can_land(memories)) {
    given_.chunks.clear();
    find_kept_whole(memories, given_);
    if (!given_.chunks.empty()) return {given_.chunks, reason};
  }
  const bool keep_all = options_.recompute == Recompute::none && shape_.with_backward;
  double rest = find_forward(memories, keep_all, given_);
  const bool settled =
      !given_.chunks.empty() && (options_.keep_plan || (given_.chunks.size() == 1 && given_.left == 0));
  if (plan.spilled() && !settled) {
    follow_plain(counts, placement);
    rest = std::min(rest, find_forward(memories, keep_all, plain_));
    reason = choose_way(rest);
  }
  Way& best = fell_back_to_ep(reason) ? plain_ : given_;
  // There may be memory for all of this step between what is kept of others, but not in one piece.
  if (keep_all && best.chunks.empty()) find_forward(memories, false, best);
  EVENKEEL_CHECK(!best.chunks.empty());
  return {best.chunks, reason};
}

StepReason StepMemory::choose_way(double rest) const {
  if (given_.chunks.empty()) return StepReason::no_memory;
  const bool plain_is_faster =
      !plain_.chunks.empty() && plain_.seconds_with(rest) < given_.seconds_with(rest);
  return plain_is_faster ? StepReason::plain_is_faster : StepReason::as_planned;
}

// The fastest way under the plan that is followed; where `keep_all`, of those that keep all for backward.
// Returns about the seconds of the backward pass, were nothing kept.
double StepMemory::find_forward(std::span<const RankMemory> memories, bool keep_all, Way& best) {
  best.chunks.clear();
  const double rest = shape_.with_backward ? rest_of_all(memories) : 0;
  if (!weights_can_land(memories)) return rest;
  if (keeps() && cuts_exactly()) find_kept_whole(memories, best);
  if (!best.chunks.empty() || (keep_all && cuts_exactly())) return rest;
  for (const std::int64_t part : {1, 2, 4}) {
    find_chunks(memories, part, keep_all, rest, best);
    if (!keeps() || !cuts_exactly()) break;  // a smaller part would gain nothing
  }
  if (keep_all && best.chunks.empty()) find_kept_whole(memories, best);
  return rest;
}

void StepMemory::find_kept_whole(std::span<const RankMemory> memories, Way& best) {
  if (!fits_whole(memories)) return;
  tried_.chunks.assign(1, {0, units_, true});
  time_tried();
  std::swap(best, tried_);
}

// With so large a part of the memory for chunks that pass, and the rest for what is kept.
void StepMemory::find_chunks(std::span<const RankMemory> memories, std::int64_t part, bool keep_all,
                             double rest, Way& best) {
  limits_.clear();
  for (std::size_t rank = 0; rank < memories.size(); ++rank)
    limits_.push_back((memories[rank].gap - foreign_.in_forward(rank)) / part);
  if (!cut_.cut(passing_forward, limits_, tried_.chunks)) return;
  if (keeps()) keep_what_fits(memories);
  if (keeps() && cuts_exactly() && !lengthen_the_rest(memories)) return;
  if (keep_all && !tried_.chunks.back().kept) return;
  time_tried();
  if (best.chunks.empty() || tried_.seconds_with(rest) < best.seconds_with(rest)) std::swap(best, tried_);
}

// Whether every rank can keep the whole step as one chunk, and have its backward pass at once.
bool StepMemory::fits_whole(std::span<const RankMemory> memories) const {
  for (RankId rank : indices<RankId>(loads_.num_ranks())) {
    const RankMemory& memory = memories[rank.offset()];
    const ChunkLoad load = loads_.load(rank, 0, loads_.num_blocks());
    const std::int64_t positions = load.positions_here;
    if (held_bytes(shape_, load, positions) > std::min(memory.held, memory.gap - memory.least) ||
        forward_bytes(shape_, load, positions) > memory.gap - foreign_.in_forward(rank.offset()) ||
        backward_bytes(shape_, load, positions) > memory.gap - foreign_.in_backward(rank.offset()))
      return false;
  }
  return true;
}

// Beside what is borrowed already.
bool StepMemory::weights_can_land(std::span<const RankMemory> memories) const {
  for (std::size_t rank = 0; rank < memories.size(); ++rank) {
    const std::int64_t borrowed = foreign_.in_forward(rank);
    if (borrowed > 0 && memories[rank].gap < borrowed + shape_.landing_bytes) return false;
  }
  return true;
}

// Keeps the first chunks, as long as those behind them have their memory, and so has their own backward.
void StepMemory::keep_what_fits(std::span<const RankMemory> memories) {
  const std::int64_t block_units = units_ / loads_.num_blocks();
  kept_.assign(memories.size(), 0);
  for (Chunk& chunk : tried_.chunks) {
    if (cuts_exactly() && chunk.end % block_units != 0) return;
    if (!can_keep_next(chunk, memories)) return;
    std::swap(kept_, kept_with_);
    chunk.kept = true;
  }
}

// Whether the chunk can be kept behind those that are, beside other steps and a chunk that has its limit;
// they hold kept_, with it kept_with_.
bool StepMemory::can_keep_next(const Chunk& chunk, std::span<const RankMemory> memories) {
  kept_with_ = kept_;
  for (RankId rank : indices<RankId>(loads_.num_ranks())) {
    const std::size_t r = rank.offset();
    const RankMemory& memory = memories[r];
    const ChunkLoad load = cut_.covering_load(rank, chunk);
    const std::int64_t positions = load.positions_here;
    const std::int64_t available = memory.gap - foreign_.in_forward(r);
    kept_with_[r] += held_bytes(shape_, load, positions);
    if (kept_with_[r] > std::min({memory.held, memory.gap - memory.least, available - limits_[r]}) ||
        kept_[r] + forward_bytes(shape_, load, positions) > available ||
        kept_[r] + backward_bytes(shape_, load, positions) + foreign_.in_recompute(r) > memory.gap)
      return false;
  }
  return true;
}

// The chunks behind those that are kept have all the memory that these leave. False if they fit no more, cut
// in other places.
bool StepMemory::lengthen_the_rest(std::span<const RankMemory> memories) {
  std::vector<Chunk>& chunks = tried_.chunks;
  const auto rest = std::ranges::find(chunks, false, &Chunk::kept);
  if (rest == chunks.begin() || rest == chunks.end()) return true;
  const auto block = static_cast<int>(rest->begin / (units_ / loads_.num_blocks()));
  chunks.erase(rest, chunks.end());
  for (std::size_t rank = 0; rank < memories.size(); ++rank)
    limits_[rank] = memories[rank].gap - foreign_.in_forward(rank) - kept_[rank];
  return cut_into_chunks(shape_, loads_, passing_forward, limits_, block, units_, chunks);
}

// The part that is not kept takes its share of what the backward pass of the whole step would.
void StepMemory::time_tried() {
  const auto rest = std::ranges::find(tried_.chunks, false, &Chunk::kept);
  const std::span<const Chunk> kept(tried_.chunks.begin(), rest);
  tried_.seconds = seconds(StepPass::forward).of_all(tried_.chunks);
  if (!kept.empty()) tried_.seconds += seconds(StepPass::backward).of_all(kept);
  const std::int64_t left = rest == tried_.chunks.end() ? 0 : units_ - rest->begin;
  tried_.left = static_cast<double>(left) / static_cast<double>(units_);
}

StepMemory::Choice StepMemory::choose_backward(const BlockTable& table, const Counts& counts,
                                               std::span<const RankMemory> memories,
                                               const LayerPlacement& placement, const StepPlan& plan) {
  load_blocks(table, memories, placement, plan);
  find_backward(memories, given_);
  const bool settled = given_.chunks.size() == 1 || (options_.keep_plan && !given_.chunks.empty());
  StepReason reason = reason_of_plan(plan.spilled());
  if (plan.spilled() && !settled) {
    follow_plain(counts, placement);
    find_backward(memories, plain_);
    reason = choose_way(0);
  }
  const Way& best = fell_back_to_ep(reason) ? plain_ : given_;
  EVENKEEL_CHECK(!best.chunks.empty());
  return {best.chunks, reason};
}

StepMemory::Choice StepMemory::cut_backward(const BlockTable& table, std::span<const RankMemory> memories,
                                            const LayerPlacement& placement, const StepPlan& plan) {
  load_blocks(table, memories, placement, plan);
  find_backward(memories, given_);
  return {given_.chunks};
}

// Of the plan that is followed.
void StepMemory::find_backward(std::span<const RankMemory> memories, Way& best) {
  best.chunks.clear();
  if (!set_backward_limits(memories)) return;
  if (!cut_.cut(backward_chunk_bytes(options_), limits_, best.chunks)) return;
  best.seconds = seconds(StepPass::backward).of_all(best.chunks);
}

// Bytes for chunks of which nothing was kept. False if a gradient that comes home may find no memory; it is
// not counted on to find it where the borrowed weights were.
bool StepMemory::set_backward_limits(std::span<const RankMemory> memories) {
  limits_.clear();
  for (std::size_t rank = 0; rank < memories.size(); ++rank) {
    limits_.push_back(memories[rank].gap - foreign_.in_recompute(rank));
    if (foreign_.load(rank).lends && limits_.back() < shape_.gradient_bytes) return false;
  }
  return true;
}

// The backward pass of the whole step, were nothing kept, in about as many chunks as it would have.
double StepMemory::rest_of_all(std::span<const RankMemory> memories) {
  if (!set_backward_limits(memories)) return std::numeric_limits<double>::infinity();
  const LoadBytes bytes = backward_chunk_bytes(options_);
  return seconds(StepPass::backward)
      .of_equal(std::max(estimated_chunks(shape_, loads_, bytes, limits_, units_),
                         cut_.count_by_rule(bytes, limits_)));
}

}  // namespace evenkeel
