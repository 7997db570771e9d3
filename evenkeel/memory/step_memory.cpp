#include "evenkeel/memory/step_memory.h"

#include <algorithm>
#include <limits>

#include "evenkeel/base/check.h"

namespace evenkeel {

namespace {

// Shares of the room that chunks may use, the rest being kept, in eighths.
constexpr int kShares[] = {8, 6, 4, 2, 1};
constexpr int kShareUnit = 8;
// One chunk of which no more than this is computed again is taken without a look at others.
constexpr double kMostRecomputed = 0.5;

std::int64_t passing_forward(const ChunkShape& shape, const ChunkLoad& load) {
  return forward_bytes(shape, load, 0);
}

std::int64_t recomputing_whole(const ChunkShape& shape, const ChunkLoad& load) {
  return std::max(forward_bytes(shape, load, load.positions_here),
                  backward_bytes(shape, load, load.positions_here));
}

constexpr PassBytes kForwardBytes = {passing_forward, overlapped_forward_bytes, &Workspaces::forward};
constexpr PassBytes kBackwardBytes = {recompute_bytes, overlapped_recompute_bytes, &Workspaces::recompute};
constexpr PassBytes kWholeBytes = {recomputing_whole, nullptr, nullptr};  // never two in flight

}  // namespace

StepMemory::StepMemory(const ChunkShape& shape, const MemoryOptions& options, std::int64_t units)
    : least_(shape),
      shape_(with_workspaces(shape, std::numeric_limits<std::int64_t>::max())),
      options_(options),
      units_(units),
      plain_(make_planner({PlannerOptions::Kind::ep})),
      foreign_(shape_, options.recompute),
      whole_(shape_, loads_, foreign_),
      cut_(shape_, options_, loads_, units) {
  for (auto* by_rank : {&tokens_, &limits_, &kept_, &kept_with_})
    by_rank->reserve(static_cast<std::size_t>(shape.num_ranks));
  for (auto* chunks : {&way_.chunks, &best_.chunks, &chunks_})
    chunks->reserve(static_cast<std::size_t>(units));
}

// The same for all ranks: what the one with the least to spare can have.
void StepMemory::choose_workspaces(std::span<const RankRoom> rooms) {
  std::int64_t spare = std::numeric_limits<std::int64_t>::max();
  for (const RankRoom& room : rooms) spare = std::min(spare, room.gap - room.least);
  shape_ = with_workspaces(least_, spare);
}

void StepMemory::load_blocks(const BlockTable& table, std::span<const RankRoom> rooms,
                             const LayerPlacement& placement, const StepPlan& plan) {
  choose_workspaces(rooms);
  tokens_.clear();
  for (const RankRoom& room : rooms) tokens_.push_back(room.tokens);
  loads_.read(table, placement, tokens_, shape_.top_k);
  if (!placement.has_single_homes()) plain_plan_.begin(placement);  // takes its memory before it is wanted
  follow(plan, placement);
}

void StepMemory::follow(const StepPlan& plan, const LayerPlacement& placement) {
  loads_.follow(plan);
  foreign_.read(plan, placement, loads_);
}

// Where each expert has one home, plain EP needs no plan to be known.
void StepMemory::follow_plain(const Counts& counts, const LayerPlacement& placement) {
  if (!placement.has_single_homes()) {
    plain_->plan(counts, placement, plain_plan_);
    return follow(plain_plan_, placement);
  }
  loads_.stay_home(counts);
  foreign_.clear();
}

// `plan` becomes plain EP if that is faster than the best so far. `consider` looks at the ways of a plan.
template <class Consider>
void StepMemory::consider_plain(const Counts& counts, const LayerPlacement& placement, StepPlan& plan,
                                const Consider& consider) {
  const double spilled = best_.seconds;
  follow_plain(counts, placement);
  consider();
  if (best_.seconds < spilled) plain_->plan(counts, placement, plan);
}

void StepMemory::choose_forward(const BlockTable& table, const Counts& counts,
                                std::span<const RankRoom> rooms, const LayerPlacement& placement,
                                StepPlan& plan) {
  forget_best();
  load_blocks(table, rooms, placement, plan);
  const bool all = options_.recompute == Recompute::none;
  consider_forward(rooms, all);
  const bool is_best =
      best_.chunks.size() == 1 && best_.chunks.front().kept && best_.chunks.front().recomputed == 0;
  if (plan.spilled() && !is_best && !is_settled())
    consider_plain(counts, placement, plan, [&] { consider_forward(rooms, all); });
  // There may be room for all of this step between what is kept of others, but not in one piece.
  if (all && best_.chunks.empty()) {
    if (plan.spilled()) plain_->plan(counts, placement, plan);
    consider_forward(rooms, false);
  }
  take_best();
}

// Where `none`, only what keeps all for backward.
void StepMemory::consider_forward(std::span<const RankRoom> rooms, bool none) {
  const bool keeps = shape_.with_backward &&
                     (options_.recompute == Recompute::none || options_.recompute == Recompute::automatic);
  const bool exact = options_.rule.kind == ChunkRule::Kind::exact;
  const StepSeconds seconds = this->seconds();
  if (seconds.of_all({}) + seconds.least_from(0) >= best_.seconds) return;
  if (!weights_can_land(rooms)) return;
  if (exact && keeps) {
    const double recomputed = keep_in_one_chunk(rooms, none ? 0 : 1);
    if (none || recomputed <= kMostRecomputed) return;
  }
  for (int share : kShares) {
    limits_.clear();
    for (std::size_t rank = 0; rank < rooms.size(); ++rank)
      limits_.push_back((rooms[rank].gap - foreign_.in_forward(rank)) * share / kShareUnit);
    if (!cut_.cut(kForwardBytes, limits_, {seconds, best_.seconds}, way_.chunks)) break;
    if (keeps) keep_what_fits(rooms);
    if (keeps && exact && !lengthen_the_rest(rooms)) continue;
    if (!none || !keeps || way_.chunks.back().kept) take_if_faster();
    if (!keeps || !exact) break;
  }
  if (none && keeps && best_.chunks.empty()) keep_in_one_chunk(rooms, 0);
}

// Beside what is borrowed already. With two chunks in flight, the first departs before weights arrive, and
// has half of what they leave.
bool StepMemory::weights_can_land(std::span<const RankRoom> rooms) const {
  const std::int64_t arriving = shape_.landing_bytes * options_.chunks_in_flight;
  for (std::size_t rank = 0; rank < rooms.size(); ++rank) {
    const std::int64_t borrowed = foreign_.in_forward(rank);
    if (borrowed > 0 && rooms[rank].gap < borrowed + arriving) return false;
  }
  return true;
}

// Considers the whole step as one kept chunk of which no rank computes more than `most` again. Returns the
// share, or more than `most`.
double StepMemory::keep_in_one_chunk(std::span<const RankRoom> rooms, double most) {
  const Chunk chunk = whole_.chunk(rooms, units_, most);
  if (chunk.recomputed <= most) {
    way_.chunks.assign(1, chunk);
    take_if_faster();
  }
  return chunk.recomputed;
}

// Keeps the first chunks, as long as those behind them have their room, and so has their own backward.
void StepMemory::keep_what_fits(std::span<const RankRoom> rooms) {
  const bool exact = options_.rule.kind == ChunkRule::Kind::exact;
  const std::int64_t block_units = units_ / loads_.num_blocks();
  kept_.assign(rooms.size(), 0);
  for (Chunk& chunk : way_.chunks) {
    if (exact && chunk.end % block_units != 0) return;
    if (!can_keep_next(chunk, rooms)) return;
    std::swap(kept_, kept_with_);
    chunk.kept = true;
  }
}

// Whether the chunk can be kept behind those that are; they hold kept_, with it kept_with_.
bool StepMemory::can_keep_next(const Chunk& chunk, std::span<const RankRoom> rooms) {
  kept_with_ = kept_;
  for (RankId rank : indices<RankId>(loads_.num_ranks())) {
    const std::size_t r = rank.offset();
    const RankRoom& room = rooms[r];
    const ChunkLoad load = cut_.covering_load(rank, chunk);
    const std::int64_t positions = load.positions_here;
    const std::int64_t forward_room = room.gap - foreign_.in_forward(r);
    kept_with_[r] += held_bytes(shape_, load, positions);
    if (kept_with_[r] > std::min({room.held, room.gap - room.least, forward_room - limits_[r]}) ||
        kept_[r] + forward_bytes(shape_, load, positions) > forward_room ||
        kept_[r] + backward_bytes(shape_, load, positions) + foreign_.in_recompute(r) > room.gap)
      return false;
  }
  return true;
}

// The chunks behind those that are kept have all the room that these leave. False if they fit no more, cut in
// other places.
bool StepMemory::lengthen_the_rest(std::span<const RankRoom> rooms) {
  const auto rest = std::ranges::find_if(way_.chunks, [](const Chunk& chunk) { return !chunk.kept; });
  if (rest == way_.chunks.begin() || rest == way_.chunks.end()) return true;
  const auto block = static_cast<int>(rest->begin / (units_ / loads_.num_blocks()));
  way_.chunks.erase(rest, way_.chunks.end());
  for (std::size_t rank = 0; rank < rooms.size(); ++rank)
    limits_[rank] = rooms[rank].gap - foreign_.in_forward(rank) - kept_[rank];
  return cut_.cut_exactly(kForwardBytes, limits_, block, {seconds(), best_.seconds}, way_.chunks);
}

void StepMemory::choose_backward(const BlockTable& table, const Counts& counts,
                                 std::span<const RankRoom> rooms, const LayerPlacement& placement,
                                 StepPlan& plan) {
  forget_best();
  load_blocks(table, rooms, placement, plan);
  consider_backward(rooms);
  if (plan.spilled() && best_.chunks.size() != 1 && !is_settled())
    consider_plain(counts, placement, plan, [&] { consider_backward(rooms); });
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
    limits_.push_back(rooms[rank].gap - foreign_.in_recompute(rank));
    // A gradient that comes home is not counted on to find room where the borrowed weights were.
    if (foreign_.load(rank).lends && limits_.back() < shape_.gradient_bytes) return;
  }
  const PassBytes& bytes = options_.recompute == Recompute::whole ? kWholeBytes : kBackwardBytes;
  if (cut_.cut(bytes, limits_, {seconds(), best_.seconds}, way_.chunks)) take_if_faster();
}

// Whether the planner's plan fits and is to be kept where it does.
bool StepMemory::is_settled() const {
  return options_.keep_plan && !best_.chunks.empty();
}

void StepMemory::forget_best() {
  best_.chunks.clear();
  best_.seconds = std::numeric_limits<double>::infinity();
}

void StepMemory::take_if_faster() {
  way_.seconds = seconds().of_all(way_.chunks);
  if (way_.seconds < best_.seconds) std::swap(way_, best_);
}

void StepMemory::take_best() {
  EVENKEEL_CHECK(best_.seconds < std::numeric_limits<double>::infinity());
  std::swap(chunks_, best_.chunks);
}

}  // namespace evenkeel
