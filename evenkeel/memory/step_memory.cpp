#include "evenkeel/memory/step_memory.h"

#include <algorithm>
#include <functional>
#include <limits>

#include "evenkeel/base/check.h"
#include "evenkeel/memory/mact.h"

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

}  // namespace

const StepMemory::PassBytes StepMemory::kForwardBytes = {passing_forward, overlapped_forward_bytes,
                                                         &ChunkShape::forward_workspace_bytes};
const StepMemory::PassBytes StepMemory::kBackwardBytes = {recompute_bytes, overlapped_recompute_bytes,
                                                          &ChunkShape::recompute_workspace_bytes};
// Never two in flight.
const StepMemory::PassBytes StepMemory::kWholeBytes = {recomputing_whole, nullptr, nullptr};

StepMemory::StepMemory(const ChunkShape& shape, const MemoryOptions& options, std::int64_t units)
    : shape_(shape), options_(options), units_(units), plain_(make_planner({PlannerOptions::Kind::ep})) {
  const auto ranks = static_cast<std::size_t>(shape.num_ranks);
  for (auto* by_rank :
       {&tokens_, &limits_, &halves_, &kept_, &kept_with_, &forward_fixed_, &kept_fixed_, &again_fixed_})
    by_rank->reserve(ranks);
  foreign_.reserve(ranks);
  whole_.reserve(ranks);
  for (auto* chunks : {&way_.chunks, &best_.chunks, &chunks_})
    chunks->reserve(static_cast<std::size_t>(units));
}

void StepMemory::load_blocks(const BlockTable& table, std::span<const RankRoom> rooms,
                             const LayerPlacement& placement, const StepPlan& plan) {
  tokens_.clear();
  for (const RankRoom& room : rooms) tokens_.push_back(room.tokens);
  loads_.read(table, placement, tokens_, shape_.top_k);
  if (!placement.has_single_homes()) plain_plan_.begin(placement);  // takes its memory before it is wanted
  follow(plan, placement);
}

void StepMemory::follow(const StepPlan& plan, const LayerPlacement& placement) {
  loads_.follow(plan);
  borrow(plan, placement);
}

// What the plan has each rank hold of other ranks' experts, whatever the chunks.
void StepMemory::borrow(const StepPlan& plan, const LayerPlacement& placement) {
  foreign_.assign(static_cast<std::size_t>(plan.num_ranks()), {});
  for (const Transfer& transfer : plan.transfers()) {
    ForeignLoad& foreign = foreign_[transfer.to.offset()];
    ++foreign.weights;
    ++foreign.gradients;
    foreign_[placement.owner(transfer.expert).offset()].lends = true;
    for (const Segment& segment : plan.segments(transfer.expert))
      if (segment.rank == transfer.to) foreign.positions += segment.size();
  }
  if (!placement.has_single_homes()) add_copies(plan, placement);
  add_up_foreign();
}

void StepMemory::add_up_foreign() {
  transfers_ = std::ranges::max(foreign_, {}, &ForeignLoad::weights).weights;
  const std::int64_t again =
      options_.recompute == Recompute::whole ? shape_.forward_weight_bytes : shape_.recompute_weight_bytes;
  forward_fixed_.clear();
  kept_fixed_.clear();
  again_fixed_.clear();
  for (const ForeignLoad& foreign : foreign_) {
    const std::int64_t kept =
        foreign.weights * shape_.backward_weight_bytes + foreign.gradients * shape_.gradient_bytes;
    forward_fixed_.push_back(foreign.weights * shape_.forward_weight_bytes);
    kept_fixed_.push_back(kept);
    again_fixed_.push_back(kept + foreign.weights * again);
  }
}

// Of an expert at home with several, the first owns the gradient. Which positions wait for room for the
// others' is not told apart.
void StepMemory::add_copies(const StepPlan& plan, const LayerPlacement& placement) {
  for (ExpertId expert : indices<ExpertId>(plan.num_experts()))
    for (RankId home : placement.homes(expert).subspan(1)) {
      ++foreign_[home.offset()].gradients;
      foreign_[placement.owner(expert).offset()].lends = true;
    }
  loads_.for_each_positions(0, loads_.num_blocks(), [&](RankId rank, std::int64_t positions) {
    foreign_[rank.offset()].positions = positions;
  });
}

// Where each expert has one home, plain EP needs no plan to be known.
void StepMemory::follow_plain(const Counts& counts, const LayerPlacement& placement) {
  if (!placement.has_single_homes()) {
    plain_->plan(counts, placement, plain_plan_);
    return follow(plain_plan_, placement);
  }
  loads_.stay_home(counts);
  foreign_.assign(static_cast<std::size_t>(placement.num_ranks()), {});
  add_up_foreign();
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
  // With two chunks in flight, the first departs before weights arrive, and has half of what they leave.
  const std::int64_t arriving = shape_.landing_bytes * options_.chunks_in_flight;
  for (std::size_t rank = 0; rank < rooms.size(); ++rank)
    if (forward_fixed_[rank] > 0 && rooms[rank].gap < forward_fixed_[rank] + arriving) return;
  if (exact && keeps) {
    const double recomputed = keep_in_one_chunk(rooms, none ? 0 : 1);
    if (none || recomputed <= kMostRecomputed) return;
  }
  for (int share : kShares) {
    limits_.clear();
    for (std::size_t rank = 0; rank < rooms.size(); ++rank)
      limits_.push_back((rooms[rank].gap - forward_fixed_[rank]) * share / kShareUnit);
    if (!cut(kForwardBytes)) break;
    if (keeps) keep_what_fits(rooms);
    if (keeps && exact && !lengthen_the_rest(rooms)) continue;
    if (!none || !keeps || way_.chunks.back().kept) take_if_faster();
    if (!keeps || !exact) break;
  }
  if (none && keeps && best_.chunks.empty()) keep_in_one_chunk(rooms, 0);
}

// Cuts as the rule says, or where one of its parts does not fit, into chunks as long as they fit. False if
// nothing fits, or if the chunks are too slow whatever is kept of them; lower limits make no fewer.
bool StepMemory::cut(const PassBytes& bytes) {
  way_.chunks.clear();
  return cut_by_rule(bytes) || cut_exactly(bytes, 0);
}

// For one of two chunks in flight.
std::int64_t StepMemory::half_of(std::int64_t limit, const PassBytes& bytes) const {
  return (limit - whole_lines(shape_.*bytes.shared)) / 2;
}

// The blocks from `begin` on. A chunk that has no other behind it has all the room.
bool StepMemory::cut_exactly(const PassBytes& bytes, int begin) {
  if (options_.chunks_in_flight == 1) return cut_while_faster(bytes.alone, limits_, begin);
  const std::size_t before = way_.chunks.size();
  if (!cut_into_chunks(shape_, loads_, bytes.alone, limits_, begin, units_, way_.chunks)) return false;
  if (way_.chunks.size() - before <= 1) return true;
  way_.chunks.erase(way_.chunks.begin() + static_cast<std::ptrdiff_t>(before), way_.chunks.end());
  halves_.clear();
  for (std::int64_t limit : limits_) halves_.push_back(half_of(limit, bytes));
  return cut_while_faster(bytes.overlapped, halves_, begin);
}

// Ends where, even if nothing is computed again of the chunks behind those there are, the best way is no
// slower.
bool StepMemory::cut_while_faster(LoadBytes bytes, std::span<const std::int64_t> limits, int begin) {
  const StepSeconds seconds = this->seconds();
  double spent = seconds.of_all(way_.chunks);
  auto may_be_best = [&](const Chunk& last) {  // passed by reference, since a copy would be allocated
    if (best_.chunks.empty()) return true;
    spent += seconds.of({last.begin, last.end, true});
    return spent + seconds.least_from(last.end) < best_.seconds;
  };
  return cut_into_chunks(shape_, loads_, bytes, limits, begin, units_, way_.chunks, std::ref(may_be_best));
}

// Lowers the limits to what the parts need, so that more can be kept.
bool StepMemory::cut_by_rule(const PassBytes& bytes) {
  if (options_.rule.kind == ChunkRule::Kind::exact) return false;
  const std::int64_t count = count_by_rule(bytes);
  const std::int64_t in_flight = std::min<std::int64_t>(count, options_.chunks_in_flight);
  const LoadBytes bytes_of = in_flight > 1 ? bytes.overlapped : bytes.alone;
  const std::int64_t shared = in_flight > 1 ? whole_lines(shape_.*bytes.shared) : 0;
  for (std::int64_t i = 0; i < count; ++i)
    way_.chunks.push_back({units_ * i / count, units_ * (i + 1) / count});
  kept_.assign(limits_.size(), 0);
  for (const Chunk& chunk : way_.chunks)
    for (RankId rank : indices<RankId>(loads_.num_ranks())) {
      std::int64_t& most = kept_[rank.offset()];
      most = std::max(most, shared + in_flight * bytes_of(shape_, covering_load(rank, chunk)));
      if (most > limits_[rank.offset()]) {
        way_.chunks.clear();
        return false;
      }
    }
  limits_ = kept_;
  return true;
}

// Eq. 8 and 9 of MemFine, with what a received row takes on the rank with the most of them.
std::int64_t StepMemory::count_by_rule(const PassBytes& bytes) const {
  if (options_.rule.kind == ChunkRule::Kind::equal)
    return std::clamp<std::int64_t>(options_.rule.count, 1, units_);
  const bool overlaps = options_.chunks_in_flight > 1;
  const LoadBytes bytes_of = overlaps ? bytes.overlapped : bytes.alone;
  std::int64_t count = 1;
  for (RankId rank : indices<RankId>(loads_.num_ranks())) {
    const ChunkLoad load = loads_.load(rank, 0, loads_.num_blocks());
    const std::int64_t fixed = bytes_of(shape_, ChunkLoad{});
    const std::int64_t moving = std::max<std::int64_t>(bytes_of(shape_, load) - fixed, 1);
    const std::int64_t limit = limits_[rank.offset()];
    const std::int64_t room = std::max<std::int64_t>((overlaps ? half_of(limit, bytes) : limit) - fixed, 0);
    const auto most_received =
        static_cast<std::int64_t>(static_cast<__int128>(load.positions_here) * room / moving);
    count = std::max(count, mact(load.positions_here, most_received, options_.rule.bins).chunks);
  }
  return std::min(count, units_);
}

// Of the blocks that a chunk touches; no less than the chunk's.
ChunkLoad StepMemory::covering_load(RankId rank, const Chunk& chunk) const {
  const std::int64_t block_units = units_ / loads_.num_blocks();
  const auto begin = static_cast<int>(chunk.begin / block_units);
  const auto end = static_cast<int>((chunk.end + block_units - 1) / block_units);
  const bool whole = chunk.begin % block_units == 0 && chunk.end % block_units == 0;
  return whole ? loads_.load(rank, begin, end) : loads_.bound(rank, begin, end);
}

// Considers the whole step as one kept chunk of which no rank computes more than `most` again. Returns the
// largest share that a rank does; past `most`, that of the first such rank; past 1, the step does not fit.
double StepMemory::keep_in_one_chunk(std::span<const RankRoom> rooms, double most) {
  constexpr double kNot = 2;
  whole_.clear();
  const auto look_at = [&](std::size_t rank) {
    if (rank == whole_.size())
      whole_.push_back(loads_.load(RankId(static_cast<int>(rank)), 0, loads_.num_blocks()));
  };
  Chunk chunk{0, units_, true};
  for (std::size_t rank = 0; rank < rooms.size() && !chunk.in_parts; ++rank) {
    look_at(rank);
    chunk.in_parts = !fits_kept(rank, rooms[rank]);
  }
  for (std::size_t rank = 0; rank < rooms.size() && chunk.in_parts && chunk.recomputed <= most; ++rank) {
    look_at(rank);
    chunk.recomputed = std::max(chunk.recomputed, recomputed_in_parts(rank, rooms[rank]).value_or(kNot));
  }
  if (chunk.recomputed > most) return chunk.recomputed;
  if (chunk.recomputed > 0 && !has_room_for_the_rest(rooms)) return kNot;
  way_.chunks.assign(1, chunk);
  take_if_faster();
  return chunk.recomputed;
}

// Whether a rank can keep all of the whole step, and have its backward pass at once.
bool StepMemory::fits_kept(std::size_t rank, const RankRoom& room) const {
  const ChunkLoad& load = whole_[rank];
  const std::int64_t saved = saved_bytes(shape_, load.positions_here);
  return saved <= room_to_keep(rank, room) &&
         saved <= room.gap - kept_fixed_[rank] - backward_bytes(shape_, load, 0);
}

// Of the whole step as one kept chunk, whose backward pass is in parts, the share of a rank's activations
// that does not stay; none where it does not fit.
std::optional<double> StepMemory::recomputed_in_parts(std::size_t rank, const RankRoom& room) const {
  const ChunkLoad& load = whole_[rank];
  const std::int64_t own_room =
      std::min(room_to_keep(rank, room), room.gap - own_part_bytes(shape_, load, {}));
  const std::int64_t foreign_room = room.gap - foreign_part_bytes(shape_, load, foreign_[rank], 0);
  if (own_room < 0 || foreign_room < 0) return std::nullopt;
  const std::int64_t saved = saved_in_parts(shape_, load, foreign_[rank], own_room, foreign_room).all();
  if (saved == load.positions_here) return 0.0;
  return 1 - static_cast<double>(saved) / static_cast<double>(load.positions_here);
}

// For activations of the whole step as one kept chunk, beside what forward needs and other steps want.
std::int64_t StepMemory::room_to_keep(std::size_t rank, const RankRoom& room) const {
  const ChunkLoad& load = whole_[rank];
  return std::min(std::min(room.held, room.gap - room.least) - held_bytes(shape_, load, 0),
                  room.gap - forward_fixed_[rank] - forward_bytes(shape_, load, 0));
}

// Whether those that do not stay can be computed again in one piece, when the others are gone.
bool StepMemory::has_room_for_the_rest(std::span<const RankRoom> rooms) const {
  for (std::size_t rank = 0; rank < rooms.size(); ++rank) {
    const std::int64_t again = again_part_bytes(shape_, whole_[rank], foreign_[rank]);
    if (std::max(again, returning_bytes(shape_, foreign_[rank])) > rooms[rank].gap) return false;
  }
  return true;
}

// Keeps the first chunks, as long as those behind them have their room, and so has their own backward.
void StepMemory::keep_what_fits(std::span<const RankRoom> rooms) {
  const bool exact = options_.rule.kind == ChunkRule::Kind::exact;
  const std::int64_t block_units = units_ / loads_.num_blocks();
  kept_.assign(rooms.size(), 0);
  for (Chunk& chunk : way_.chunks) {
    if (exact && chunk.end % block_units != 0) return;
    kept_with_ = kept_;
    for (RankId rank : indices<RankId>(loads_.num_ranks())) {
      const RankRoom& room = rooms[rank.offset()];
      const ChunkLoad load = covering_load(rank, chunk);
      const std::int64_t before = kept_[rank.offset()];
      const std::int64_t forward_room = room.gap - forward_fixed_[rank.offset()];
      const std::int64_t most_held =
          std::min({room.held, room.gap - room.least, forward_room - limits_[rank.offset()]});
      kept_with_[rank.offset()] += held_bytes(shape_, load, load.positions_here);
      if (kept_with_[rank.offset()] > most_held ||
          before + forward_bytes(shape_, load, load.positions_here) > forward_room ||
          before + backward_bytes(shape_, load, load.positions_here) + again_fixed_[rank.offset()] > room.gap)
        return;
    }
    std::swap(kept_, kept_with_);
    chunk.kept = true;
  }
}

// The chunks behind those that are kept have all the room that these leave. False if they fit no more, cut in
// other places.
bool StepMemory::lengthen_the_rest(std::span<const RankRoom> rooms) {
  const auto rest = std::ranges::find_if(way_.chunks, [](const Chunk& chunk) { return !chunk.kept; });
  if (rest == way_.chunks.begin() || rest == way_.chunks.end()) return true;
  const auto block = static_cast<int>(rest->begin / (units_ / loads_.num_blocks()));
  way_.chunks.erase(rest, way_.chunks.end());
  for (std::size_t rank = 0; rank < rooms.size(); ++rank)
    limits_[rank] = rooms[rank].gap - forward_fixed_[rank] - kept_[rank];
  return cut_exactly(kForwardBytes, block);
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
    limits_.push_back(rooms[rank].gap - again_fixed_[rank]);
    // A gradient that comes home is not counted on to find room where the borrowed weights were.
    if (foreign_[rank].lends && limits_.back() < shape_.gradient_bytes) return;
  }
  if (cut(options_.recompute == Recompute::whole ? kWholeBytes : kBackwardBytes)) take_if_faster();
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
