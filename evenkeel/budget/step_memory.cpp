#include "evenkeel/budget/step_memory.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "evenkeel/base/check.h"

namespace evenkeel {

namespace {

constexpr int kShareUnit = 8;  // of StepMemory::kShares
// One chunk of which no more than this is computed again is taken without a look at others.
constexpr double kMostRecomputed = 0.5;
// Another way is looked at where equal chunks show it to take less than this of the best one's time: mostly
// they show a little too little.
constexpr double kWorthCutting = 0.99;

std::int64_t passing_forward(const ChunkShape& shape, const ChunkLoad& load) {
  return forward_bytes(shape, load, 0);
}

std::int64_t recomputing_whole(const ChunkShape& shape, const ChunkLoad& load) {
  return std::max(forward_bytes(shape, load, load.positions_here),
                  backward_bytes(shape, load, load.positions_here));
}

std::int64_t going_back_kept(const ChunkShape& shape, const ChunkLoad& load) {
  return backward_bytes(shape, load, load.positions_here);
}

constexpr PassBytes kForwardBytes = {passing_forward, overlapped_forward_bytes, &Workspaces::forward};
constexpr PassBytes kBackwardBytes = {recompute_bytes, overlapped_recompute_bytes, &Workspaces::recompute};
constexpr PassBytes kWholeBytes = {recomputing_whole, nullptr, nullptr};  // never two in flight
constexpr PassBytes kKeptBytes = {going_back_kept, nullptr, nullptr};     // nor these

const PassBytes& backward_chunk_bytes(const MemoryOptions& options) {
  return options.recompute == Recompute::whole ? kWholeBytes : kBackwardBytes;
}

}  // namespace

StepMemory::StepMemory(const ChunkShape& shape, const MemoryOptions& options, std::int64_t units)
    : least_(shape),
      shape_(with_workspaces(shape, std::numeric_limits<std::int64_t>::max())),
      options_(options),
      units_(units),
      plain_(make_planner({PlannerOptions::Kind::ep})),
      foreign_(shape_, options.recompute),
      whole_(shape_, loads_, foreign_),
      cut_(shape_, options_, loads_, units),
      forward_estimate_(kForwardBytes, shape_, loads_, options.chunks_in_flight),
      backward_estimate_(backward_chunk_bytes(options), shape_, loads_, options.chunks_in_flight),
      kept_estimate_(kKeptBytes, shape_, loads_, 1) {
  for (auto* by_rank : {&held_whole_, &tokens_, &limits_, &kept_, &kept_with_})
    by_rank->reserve(static_cast<std::size_t>(shape.num_ranks));
  for (auto* chunks : {&candidate_.chunks, &best_.chunks, &chunks_})
    chunks->reserve(static_cast<std::size_t>(units));
}

// The same for all ranks: what the one with the least to spare can have.
void StepMemory::choose_workspaces(std::span<const RankMemory> memories) {
  std::int64_t spare = std::numeric_limits<std::int64_t>::max();
  for (const RankMemory& memory : memories) spare = std::min(spare, memory.gap - memory.least);
  shape_ = with_workspaces(least_, spare);
}

void StepMemory::load_blocks(const BlockTable& table, std::span<const RankMemory> memories,
                             const LayerPlacement& placement, const StepPlan& plan) {
  choose_workspaces(memories);
  tokens_.clear();
  for (const RankMemory& memory : memories) tokens_.push_back(memory.tokens);
  loads_.read(table, placement, tokens_, shape_.top_k);
  if (!placement.has_single_homes()) plain_plan_.begin(placement);  // takes its memory before it is wanted
  follow(plan, placement);
}

void StepMemory::follow(const StepPlan& plan, const LayerPlacement& placement) {
  is_plain_ = false;
  loads_.follow(plan);
  foreign_.read(plan, placement);
}

// Where each expert has one home, plain EP needs no plan to be known.
void StepMemory::follow_plain(const Counts& counts, const LayerPlacement& placement) {
  if (!placement.has_single_homes()) {
    plain_->plan(counts, placement, plain_plan_);
    follow(plain_plan_, placement);
  } else {
    loads_.stay_home(counts);
    foreign_.clear();
  }
  is_plain_ = true;
}

void StepMemory::choose_forward(const BlockTable& table, const Counts& counts,
                                std::span<const RankMemory> memories, const LayerPlacement& placement,
                                StepPlan& plan) {
  forget_best();
  load_blocks(table, memories, placement, plan);
  const bool all = options_.recompute == Recompute::none;
  if (plan.spilled())
    consider_both_plans(counts, memories, placement, plan);
  else
    consider_forward(memories, all, lower_bound(memories));
  // There may be memory for all of this step between what is kept of others, but not in one piece.
  if (all && best_.chunks.empty()) {
    if (plan.spilled()) follow_plain(counts, placement);
    consider_forward(memories, false, lower_bound(memories));
  }
  take_best_plan(counts, placement, plan);
  take_best();
}

// The more promising one first: the other is mostly known to be slower before it is cut. Of what the
// planner's plan does not keep, backward may go under plain EP.
void StepMemory::consider_both_plans(const Counts& counts, std::span<const RankMemory> memories,
                                     const LayerPlacement& placement, const StepPlan& plan) {
  const bool all = options_.recompute == Recompute::none;
  const bool settled = weights_can_land(memories) && settles_in_one_chunk(memories, all);
  const bool fits = !best_.chunks.empty();
  if (fits && (options_.keep_plan || best_.chunks.front().recomputed == 0)) return;
  LowerBound spilled = lower_bound(memories);
  const double spilled_seconds = estimated_best_seconds(memories);
  follow_plain(counts, placement);
  const LowerBound plain = lower_bound(memories);
  const bool plain_first = !options_.keep_plan && estimated_best_seconds(memories) < spilled_seconds;
  spilled.rest = std::min(spilled.rest, plain.rest);
  if (plain_first) consider_forward(memories, all, plain);
  if (!settled && spilled.least() < best_.seconds) {
    follow(plan, placement);
    bound_ = spilled;
    if (weights_can_land(memories)) consider_shares(memories, all);
  }
  if (plain_first || (options_.keep_plan && !best_.chunks.empty())) return;
  if (plain.least() >= best_.seconds) return;
  follow_plain(counts, placement);
  consider_forward(memories, all, plain);
}

// Where `all`, only what keeps all for backward.
void StepMemory::consider_forward(std::span<const RankMemory> memories, bool all, const LowerBound& bound) {
  if (bound.least() >= best_.seconds || !weights_can_land(memories)) return;
  bound_ = bound;
  if (!settles_in_one_chunk(memories, all)) consider_shares(memories, all);
}

StepMemory::LowerBound StepMemory::lower_bound(std::span<const RankMemory> memories) {
  const StepSeconds forward = seconds(StepPass::forward);
  bound_ = {};
  bound_.least_forward = forward.of_all({}) + forward.least_from(0);
  if (shape_.with_backward) {
    bound_.rest = rest_of_all(memories);
    bound_.least_backward = seconds(StepPass::backward).least_from(0);
  }
  return bound_;
}

// How many chunks, in the memory that they have.
std::int64_t StepMemory::about_forward() const {
  return std::max(forward_estimate_.chunks(limits_, units_), cut_.count_by_rule(kForwardBytes, limits_));
}

void StepMemory::forward_limits(std::span<const RankMemory> memories, int share) {
  limits_.clear();
  for (std::size_t rank = 0; rank < memories.size(); ++rank)
    limits_.push_back((memories[rank].gap - foreign_.in_forward(rank)) * share / kShareUnit);
}

bool StepMemory::keeps() const {
  return shape_.with_backward &&
         (options_.recompute == Recompute::none || options_.recompute == Recompute::automatic);
}

// Whether one kept chunk, which is considered, is all that is to be looked at.
bool StepMemory::settles_in_one_chunk(std::span<const RankMemory> memories, bool all) {
  if (!keeps() || options_.rule.kind != ChunkRule::Kind::exact) return false;
  const double recomputed = keep_in_one_chunk(memories, all ? 0 : 1);
  return all || recomputed <= kMostRecomputed;
}

// The most promising share first, so that most others are known to be slower before they are cut.
void StepMemory::consider_shares(std::span<const RankMemory> memories, bool all) {
  const bool exact = options_.rule.kind == ChunkRule::Kind::exact;
  const StepSeconds forward = seconds(StepPass::forward);
  measure_shares(memories);
  for (const PromisingShare& promising : promising_shares(memories, all)) {
    if (!best_.chunks.empty() && promising.seconds >= kWorthCutting * best_.seconds) break;
    forward_limits(memories, promising.eighths);
    const TimeLimit time{forward, best_.seconds - bound_.least_of_backward()};
    if (!cut_.cut(kForwardBytes, limits_, time, candidate_.chunks)) continue;
    if (keeps()) keep_what_fits(memories);
    if (keeps() && exact && !lengthen_the_rest(memories, time)) continue;
    if (!all || candidate_.chunks.back().kept) take_if_faster(both_passes_seconds());
  }
  if (all && best_.chunks.empty()) keep_in_one_chunk(memories, 0);
}

// Of the plan looked at, what is asked of every share.
void StepMemory::measure_shares(std::span<const RankMemory> memories) {
  forward_estimate_.read();
  if (!keeps()) return;
  held_whole_.clear();
  limits_.clear();
  for (RankId rank : indices<RankId>(loads_.num_ranks())) {
    const ChunkLoad load = loads_.load(rank, 0, loads_.num_blocks());
    held_whole_.push_back(std::max<std::int64_t>(held_bytes(shape_, load, load.positions_here), 1));
    limits_.push_back(memories[rank.offset()].gap - foreign_.in_recompute(rank.offset()));
  }
  kept_estimate_.read();
  least_to_keep_ = kept_estimate_.chunks(limits_, units_ + 1);
}

double StepMemory::estimated_best_seconds(std::span<const RankMemory> memories) {
  measure_shares(memories);
  return promising_shares(memories, false).front().seconds;
}

// Where `all` is to be kept, every share may be the one that keeps it.
std::span<const StepMemory::PromisingShare> StepMemory::promising_shares(std::span<const RankMemory> memories,
                                                                         bool all) {
  const bool several = keeps() && options_.rule.kind == ChunkRule::Kind::exact;
  const std::size_t count = several ? std::size(kShares) : 1;
  for (std::size_t i = 0; i < count; ++i) {
    forward_limits(memories, kShares[i]);
    shares_[i] = {kShares[i], all ? 0 : estimate_seconds(memories, kShares[i])};
  }
  const std::span<PromisingShare> shares(shares_.data(), count);
  std::ranges::sort(shares, {}, [](const PromisingShare& of) { return std::pair(of.seconds, -of.eighths); });
  return shares;
}

// By equal chunks, each with its share of the load, before boundaries are looked at. With less than all the
// memory, only for what can be kept.
double StepMemory::estimate_seconds(std::span<const RankMemory> memories, int share) const {
  const std::int64_t chunks = about_forward();
  const double forward = seconds(StepPass::forward).of_equal(chunks);
  std::int64_t kept = keeps() && share < kShareUnit && chunks >= least_to_keep_ ? chunks : 0;
  for (std::size_t rank = 0; rank < memories.size() && kept > 0; ++rank)
    kept = std::min(kept, bytes_behind(memories[rank], rank) * chunks / held_whole_[rank]);
  if (kept == 0 && share < kShareUnit) return std::numeric_limits<double>::infinity();
  const double part = static_cast<double>(kept) / static_cast<double>(chunks);
  double sum = forward;
  if (kept > 0) sum += part * seconds(StepPass::backward).of_equal(chunks, true);
  if (kept < chunks) sum += (1 - part) * bound_.rest;
  return sum;
}

// Of what is kept, beside other steps and a chunk that has its limit.
std::int64_t StepMemory::bytes_behind(const RankMemory& memory, std::size_t rank) const {
  return std::min(
      {memory.held, memory.gap - memory.least, memory.gap - foreign_.in_forward(rank) - limits_[rank]});
}

// Beside what is borrowed already. With two chunks in flight, the first departs before weights arrive, and
// has half of what they leave.
bool StepMemory::weights_can_land(std::span<const RankMemory> memories) const {
  const std::int64_t arriving = shape_.landing_bytes * options_.chunks_in_flight;
  for (std::size_t rank = 0; rank < memories.size(); ++rank) {
    const std::int64_t borrowed = foreign_.in_forward(rank);
    if (borrowed > 0 && memories[rank].gap < borrowed + arriving) return false;
  }
  return true;
}

// Considers the whole step as one kept chunk of which no rank computes more than `most` again. Returns the
// share, or more than `most`.
double StepMemory::keep_in_one_chunk(std::span<const RankMemory> memories, double most) {
  const Chunk chunk = whole_.chunk(memories, units_, most);
  if (chunk.recomputed <= most) {
    candidate_.chunks.assign(1, chunk);
    take_if_faster(both_passes_seconds());
  }
  return chunk.recomputed;
}

// Keeps the first chunks, as long as those behind them have their memory, and so has their own backward.
void StepMemory::keep_what_fits(std::span<const RankMemory> memories) {
  const bool exact = options_.rule.kind == ChunkRule::Kind::exact;
  const std::int64_t block_units = units_ / loads_.num_blocks();
  kept_.assign(memories.size(), 0);
  for (Chunk& chunk : candidate_.chunks) {
    if (exact && chunk.end % block_units != 0) return;
    if (!can_keep_next(chunk, memories)) return;
    std::swap(kept_, kept_with_);
    chunk.kept = true;
  }
}

// Whether the chunk can be kept behind those that are; they hold kept_, with it kept_with_.
bool StepMemory::can_keep_next(const Chunk& chunk, std::span<const RankMemory> memories) {
  kept_with_ = kept_;
  for (RankId rank : indices<RankId>(loads_.num_ranks())) {
    const std::size_t r = rank.offset();
    const RankMemory& memory = memories[r];
    const ChunkLoad load = cut_.covering_load(rank, chunk);
    const std::int64_t positions = load.positions_here;
    const std::int64_t forward_available = memory.gap - foreign_.in_forward(r);
    kept_with_[r] += held_bytes(shape_, load, positions);
    if (kept_with_[r] > bytes_behind(memory, r) ||
        kept_[r] + forward_bytes(shape_, load, positions) > forward_available ||
        kept_[r] + backward_bytes(shape_, load, positions) + foreign_.in_recompute(r) > memory.gap)
      return false;
  }
  return true;
}

// The chunks behind those that are kept have all the memory that these leave. False if they fit no more, cut
// in other places.
bool StepMemory::lengthen_the_rest(std::span<const RankMemory> memories, const TimeLimit& time) {
  const auto rest = std::ranges::find_if(candidate_.chunks, [](const Chunk& chunk) { return !chunk.kept; });
  if (rest == candidate_.chunks.begin() || rest == candidate_.chunks.end()) return true;
  const auto block = static_cast<int>(rest->begin / (units_ / loads_.num_blocks()));
  candidate_.chunks.erase(rest, candidate_.chunks.end());
  for (std::size_t rank = 0; rank < memories.size(); ++rank)
    limits_[rank] = memories[rank].gap - foreign_.in_forward(rank) - kept_[rank];
  return cut_.cut_exactly(kForwardBytes, limits_, block, time, candidate_.chunks);
}

void StepMemory::choose_backward(const BlockTable& table, const Counts& counts,
                                 std::span<const RankMemory> memories, const LayerPlacement& placement,
                                 StepPlan& plan) {
  forget_best();
  load_blocks(table, memories, placement, plan);
  consider_backward(memories);
  const bool is_settled = best_.chunks.size() == 1 || (options_.keep_plan && !best_.chunks.empty());
  if (plan.spilled() && !is_settled) {
    follow_plain(counts, placement);
    consider_backward(memories);
  }
  take_best_plan(counts, placement, plan);
  take_best();
}

bool StepMemory::cut_backward(const BlockTable& table, std::span<const RankMemory> memories,
                              const LayerPlacement& placement, const StepPlan& plan) {
  forget_best();
  load_blocks(table, memories, placement, plan);
  consider_backward(memories);
  if (best_.chunks.empty()) return false;
  take_best();
  return true;
}

void StepMemory::choose_for_any_routing(StepPass pass, const Counts& counts,
                                        std::span<const RankMemory> memories, const LayerPlacement& placement,
                                        StepPlan& plan) {
  choose_workspaces(memories);
  plain_->plan(counts, placement, plan);
  foreign_.read(plan, placement);
  const bool forward = pass == StepPass::forward;
  if (forward)
    forward_limits(memories, kShareUnit);
  else
    EVENKEEL_CHECK(backward_limits(memories));
  const PassBytes& bytes = forward ? kForwardBytes : backward_chunk_bytes(options_);
  const std::int64_t tokens = std::ranges::max(memories, {}, &RankMemory::tokens).tokens;
  const PlanExperts experts{placement.most_natives(), !placement.has_single_homes()};
  EVENKEEL_CHECK(cut_.cut_for_any_routing(bytes, experts, limits_, tokens, chunks_));
}

void StepMemory::consider_backward(std::span<const RankMemory> memories) {
  if (!backward_limits(memories)) return;
  const StepSeconds backward = seconds(StepPass::backward);
  if (cut_.cut(backward_chunk_bytes(options_), limits_, {backward, best_.seconds}, candidate_.chunks))
    take_if_faster(backward.of_all(candidate_.chunks));
}

// Bytes for chunks of which nothing was kept. False if a gradient that comes home may find no memory; it is
// not counted on to find it where the borrowed weights were.
bool StepMemory::backward_limits(std::span<const RankMemory> memories) {
  limits_.clear();
  for (std::size_t rank = 0; rank < memories.size(); ++rank) {
    limits_.push_back(memories[rank].gap - foreign_.in_recompute(rank));
    if (foreign_.load(rank).lends && limits_.back() < shape_.gradient_bytes) return false;
  }
  return true;
}

// The backward pass of the whole step, were nothing kept, in about as many chunks as it would have.
double StepMemory::rest_of_all(std::span<const RankMemory> memories) {
  if (!backward_limits(memories)) return std::numeric_limits<double>::infinity();
  backward_estimate_.read();
  return seconds(StepPass::backward)
      .of_equal(std::max(backward_estimate_.chunks(limits_, units_),
                         cut_.count_by_rule(backward_chunk_bytes(options_), limits_)));
}

// Of the way looked at. The part that is not kept takes its share of what the whole step would.
double StepMemory::both_passes_seconds() const {
  const auto rest = std::ranges::find_if(candidate_.chunks, [](const Chunk& chunk) { return !chunk.kept; });
  const std::span<const Chunk> kept(candidate_.chunks.begin(), rest);
  double sum = seconds(StepPass::forward).of_all(candidate_.chunks);
  if (!kept.empty()) sum += seconds(StepPass::backward).of_all(kept);
  if (rest != candidate_.chunks.end())
    sum += bound_.rest * static_cast<double>(units_ - rest->begin) / static_cast<double>(units_);
  return sum;
}

void StepMemory::forget_best() {
  best_.chunks.clear();
  best_.seconds = std::numeric_limits<double>::infinity();
}

void StepMemory::take_if_faster(double seconds) {
  if (seconds >= best_.seconds && !best_.chunks.empty()) return;
  candidate_.seconds = seconds;
  candidate_.is_plain = is_plain_;
  std::swap(candidate_, best_);
}

void StepMemory::take_best_plan(const Counts& counts, const LayerPlacement& placement, StepPlan& plan) {
  if (best_.is_plain) plain_->plan(counts, placement, plan);
}

void StepMemory::take_best() {
  EVENKEEL_CHECK(!best_.chunks.empty());
  std::swap(chunks_, best_.chunks);
}

}  // namespace evenkeel
