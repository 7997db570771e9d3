#include "evenkeel/step/internal/one_plan.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "evenkeel/training_memory/mact.h"

namespace evenkeel::internal {

OnePlan::OnePlan(ByteModel& model, const DecisionOptions& options, int num_ranks)
    : model_(model), options_(options), foreign_(num_ranks) {
  for (auto* by_rank : {&tokens_, &limits_, &kept_, &kept_with_})
    by_rank->reserve(static_cast<std::size_t>(num_ranks));
  for (StepCandidate* candidate : {&best_, &trial_})
    candidate->chunks.reserve(static_cast<std::size_t>(options.units));
}

bool OnePlan::keeps() const {
  const Recompute recompute = options_.memory.recompute;
  return options_.with_backward && (recompute == Recompute::none || recompute == Recompute::automatic);
}

// All ranks get workspaces of the same size, which the rank with the least spare bytes determines.
void OnePlan::read(const StepInputs& in) {
  memories_ = in.memories;
  std::int64_t spare = std::numeric_limits<std::int64_t>::max();
  tokens_.clear();
  for (const RankMemory& memory : memories_) {
    spare = std::min(spare, memory.free_bytes - memory.reserved_bytes);
    tokens_.push_back(memory.tokens);
  }
  model_.give_workspace(spare);
  loads_.read(in.table, in.homes, tokens_, in.top_k);
}

// Cuts the step by the chunk rule: into equal parts, whose number is fixed or comes from MemFine's tuning. If
// the rule is `exact`, or if an equal part does not fit, makes each chunk as long as it fits
// (chunk_planner.h). Returns false if nothing fits.
bool OnePlan::cut(ChunkUse use, std::vector<Chunk>& chunks) {
  chunks.clear();
  return cut_by_rule(use, chunks) || cut_into_chunks(limits(use), loads_, 0, options_.units, chunks);
}

// Also lowers limits_ to the bytes that the parts need, so that more chunks can be kept.
bool OnePlan::cut_by_rule(ChunkUse use, std::vector<Chunk>& chunks) {
  if (cuts_exactly()) return false;
  const ChunkLimits within = limits(use);
  const std::int64_t count = count_by_rule(use), units = options_.units;
  for (std::int64_t i = 0; i < count; ++i) chunks.push_back({units * i / count, units * (i + 1) / count});
  most_.assign(limits_.size(), 0);
  for (const Chunk& chunk : chunks)
    for (RankId rank : indices<RankId>(loads_.num_ranks())) {
      std::int64_t& most = most_[rank.offset()];
      most = std::max(most, within.of(rank, covering_load(rank, chunk)));
      if (most > within.limit(rank)) {
        chunks.clear();
        return false;
      }
    }
  std::ranges::copy(most_, limits_.begin());
  return true;
}

// The number of chunks that the rule asks for, even if they do not fit; 1 under `exact`. `mact` applies Eq. 8
// and 9 of MemFine to each rank, with the rank's own bytes for a received row, and takes the largest result.
std::int64_t OnePlan::count_by_rule(ChunkUse use) const {
  const ChunkRule& rule = options_.memory.rule;
  if (cuts_exactly()) return 1;
  if (rule.kind == ChunkRule::Kind::equal) return std::clamp<std::int64_t>(rule.count, 1, options_.units);
  const ChunkLimits within = limits(use);
  std::int64_t count = 1;
  for (RankId rank : indices<RankId>(loads_.num_ranks())) {
    const ChunkLoad load = loads_.load(rank, 0, loads_.num_blocks());
    const std::int64_t fixed = within.of(rank, {});
    const std::int64_t moving = std::max<std::int64_t>(within.of(rank, load) - fixed, 1);
    const std::int64_t available = std::max<std::int64_t>(within.limit(rank) - fixed, 0);
    const auto most_received =
        static_cast<std::int64_t>(static_cast<__int128>(load.positions_here) * available / moving);
    count = std::max(count, mact(load.positions_here, most_received, rule.bins).chunks);
  }
  return std::min(count, options_.units);
}

// The load of all blocks that a chunk overlaps. It is an upper bound for the chunk's load.
ChunkLoad OnePlan::covering_load(RankId rank, const Chunk& chunk) const {
  const auto begin = static_cast<int>(chunk.begin / block_units());
  const auto end = static_cast<int>((chunk.end + block_units() - 1) / block_units());
  const bool whole = chunk.begin % block_units() == 0 && chunk.end % block_units() == 0;
  return whole ? loads_.load(rank, begin, end) : loads_.bound(rank, begin, end);
}

void OnePlan::find_forward(bool keep_all, double backward_seconds) {
  best_.chunks.clear();
  const bool keeps_any = keeps(), exact = cuts_exactly();
  if (!weights_fit_in_transit(ChunkUse::forward) || (keep_all && exact)) return;
  for (const std::int64_t part : {1, 2, 4}) {
    find_chunks(part, keep_all, backward_seconds);
    if (!keeps_any || !exact) break;  // smaller parts would gain nothing
  }
  if (keeps_any && exact)
    for (const std::int64_t most_behind : {1, 2, 4}) find_kept_prefix(most_behind, backward_seconds);
  if (keep_all && best_.chunks.empty()) find_kept_whole();
}

void OnePlan::find_kept_whole() {
  best_.chunks.clear();
  if (!weights_fit_in_transit(ChunkUse::forward) || !fits_whole()) return;
  best_.chunks.assign(1, {0, options_.units, true});
  time(StepPass::forward, best_);
}

// Limits chunks that are not kept to 1 / `part` of the memory, so that kept chunks can have the rest.
void OnePlan::find_chunks(std::int64_t part, bool keep_all, double backward_seconds) {
  limits_.clear();
  for (RankId rank : indices<RankId>(loads_.num_ranks())) {
    const std::int64_t away = model_.foreign(ChunkUse::forward, foreign(rank));
    limits_.push_back(away + (memories_[rank.offset()].free_bytes - away) / part);
  }
  if (!cut(ChunkUse::forward, trial_.chunks)) return;
  if (keeps()) keep_what_fits();
  if (keeps() && cuts_exactly() && !lengthen_recomputed()) return;
  if (keep_all && !trial_.chunks.back().kept) return;
  take_trial_if_faster(backward_seconds);
}

void OnePlan::take_trial_if_faster(double backward_seconds) {
  time(StepPass::forward, trial_);
  if (best_.chunks.empty() || trial_.seconds_with(backward_seconds) < best_.seconds_with(backward_seconds))
    std::swap(best_, trial_);
}

// Finds the longest prefix of the step that can be kept as one chunk, if at most `most_behind` chunks may
// follow.
void OnePlan::find_kept_prefix(std::int64_t most_behind, double backward_seconds) {
  int kept = 0, too_many = loads_.num_blocks();
  while (too_many - kept > 1) {
    const int middle = kept + (too_many - kept) / 2;
    (keeps_prefix(middle, most_behind) ? kept : too_many) = middle;
  }
  if (kept > 0 && keeps_prefix(kept, most_behind)) take_trial_if_faster(backward_seconds);
}

// Makes the kept prefix and the chunks after it, if they fit. can_keep_next() is called with the limits of an
// empty next chunk; cut_behind() then checks with the real limits.
bool OnePlan::keeps_prefix(int blocks, std::int64_t most_behind) {
  trial_.chunks.assign(1, {0, blocks * block_units(), true});
  kept_.assign(memories_.size(), 0);
  limits_.assign(memories_.size(), 0);
  for (RankId rank : indices<RankId>(loads_.num_ranks()))
    limits_[rank.offset()] = model_.foreign(ChunkUse::forward, foreign(rank));
  if (!can_keep_next(trial_.chunks.front())) return false;
  std::swap(kept_, kept_with_);
  return cut_behind(blocks) && std::ssize(trial_.chunks) - 1 <= most_behind;
}

// True if every rank can keep the whole step as one chunk and run its backward pass as one chunk.
bool OnePlan::fits_whole() const {
  for (RankId rank : indices<RankId>(loads_.num_ranks())) {
    const RankMemory& memory = memories_[rank.offset()];
    const ChunkLoad load = loads_.load(rank, 0, loads_.num_blocks());
    if (model_.held(load) > std::min(memory.keep_limit_bytes, memory.free_bytes - memory.reserved_bytes) ||
        model_.bytes(ChunkUse::forward_kept, load, foreign(rank)) > memory.free_bytes ||
        model_.bytes(ChunkUse::backward_kept, load, foreign(rank)) > memory.free_bytes)
      return false;
  }
  return true;
}

// True if the buffers fit that are needed while borrowed weights, or in backward their gradients, are sent.
bool OnePlan::weights_fit_in_transit(ChunkUse use) const {
  for (RankId rank : indices<RankId>(loads_.num_ranks()))
    if (model_.in_transit_bytes(use, foreign(rank)) > memories_[rank.offset()].free_bytes) return false;
  return true;
}

// Keeps as many of the first chunks as possible: there must be enough memory for the chunks after them and
// for the backward pass of the kept chunks.
void OnePlan::keep_what_fits() {
  kept_.assign(memories_.size(), 0);
  for (Chunk& chunk : trial_.chunks) {
    if (cuts_exactly() && chunk.end % block_units() != 0) return;
    if (!can_keep_next(chunk)) return;
    std::swap(kept_, kept_with_);
    chunk.kept = true;
  }
}

// True if the chunk can be kept in addition to those already kept. The memory for other steps and for a later
// chunk at its limit must stay free. kept_ is the bytes of the chunks already kept; kept_with_ includes this
// chunk.
bool OnePlan::can_keep_next(const Chunk& chunk) {
  kept_with_ = kept_;
  for (RankId rank : indices<RankId>(loads_.num_ranks())) {
    const std::size_t r = rank.offset();
    const RankMemory& memory = memories_[r];
    const ChunkLoad load = covering_load(rank, chunk);
    kept_with_[r] += model_.held(load);
    if (kept_with_[r] > std::min({memory.keep_limit_bytes, memory.free_bytes - memory.reserved_bytes,
                                  memory.free_bytes - limits_[r]}) ||
        kept_[r] + model_.bytes(ChunkUse::forward_kept, load, foreign(rank)) > memory.free_bytes ||
        kept_[r] + model_.bytes(ChunkUse::backward_kept, load, {}) +
                model_.foreign(ChunkUse::recompute, foreign(rank)) >
            memory.free_bytes)
      return false;
  }
  return true;
}

// Cuts the part after the kept chunks again, into chunks that may use all the memory that the kept ones
// leave. Returns false if they no longer fit.
bool OnePlan::lengthen_recomputed() {
  std::vector<Chunk>& chunks = trial_.chunks;
  const auto first_recomputed = std::ranges::find(chunks, false, &Chunk::kept);
  if (first_recomputed == chunks.begin() || first_recomputed == chunks.end()) return true;
  const auto block = static_cast<int>(first_recomputed->begin / block_units());
  chunks.erase(first_recomputed, chunks.end());
  return cut_behind(block);
}

// Cuts the step from `block` on into chunks that use the memory that kept_ leaves.
bool OnePlan::cut_behind(int block) {
  for (std::size_t rank = 0; rank < memories_.size(); ++rank)
    limits_[rank] = memories_[rank].free_bytes - kept_[rank];
  return cut_into_chunks(limits(ChunkUse::forward), loads_, block, options_.units, trial_.chunks);
}

// Sets candidate.seconds and candidate.recomputed_part. The backward pass of the part that is not kept is
// added later, as this part's share of the whole step's backward.
void OnePlan::time(StepPass pass, StepCandidate& candidate) const {
  candidate.seconds = seconds(pass).of_all(candidate.chunks);
  candidate.recomputed_part = 0;
  if (pass == StepPass::backward) return;
  const auto first_recomputed = std::ranges::find(candidate.chunks, false, &Chunk::kept);
  const std::span<const Chunk> kept(candidate.chunks.begin(), first_recomputed);
  if (!kept.empty()) candidate.seconds += seconds(StepPass::backward).of_all(kept);
  const std::int64_t left =
      first_recomputed == candidate.chunks.end() ? 0 : options_.units - first_recomputed->begin;
  candidate.recomputed_part = static_cast<double>(left) / static_cast<double>(options_.units);
}

void OnePlan::find_backward() {
  best_.chunks.clear();
  if (!set_backward_limits()) return;
  if (!cut(ChunkUse::recompute, best_.chunks)) return;
  time(StepPass::backward, best_);
}

void OnePlan::find_runs() {
  best_.chunks.clear();
  best_.recomputed_part = 0;
  if (!set_backward_limits()) return;
  for (int begin = 0, end = 0; begin < loads_.num_blocks(); begin = end) {
    end = end_of_run(limits(ChunkUse::recompute), loads_, begin);
    if (end == begin) return best_.chunks.clear();
    best_.chunks.push_back({begin, end});
  }
  best_.chunks.front().kept = options_.with_backward && best_.chunks.size() == 1;
  best_.seconds = seconds(StepPass::forward).of_all(best_.chunks);
  if (options_.with_backward) best_.seconds += seconds(StepPass::backward).of_all(best_.chunks);
}

// Lets the chunks that were not kept use all the memory in backward. Returns false if gradients may not fit
// while they are sent to their owners.
bool OnePlan::set_backward_limits() {
  limits_.clear();
  for (const RankMemory& memory : memories_) limits_.push_back(memory.free_bytes);
  return weights_fit_in_transit(ChunkUse::recompute);
}

// Assumes about as many chunks as the whole step would need in backward.
double OnePlan::estimate_backward_seconds() {
  if (!options_.with_backward) return 0;
  if (!set_backward_limits()) return std::numeric_limits<double>::infinity();
  const std::int64_t estimated = estimated_chunks(limits(ChunkUse::recompute), loads_, options_.units);
  return seconds(StepPass::backward).of_equal(std::max(estimated, count_by_rule(ChunkUse::recompute)));
}

}  // namespace evenkeel::internal
