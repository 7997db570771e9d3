#include "evenkeel/step/decide.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "evenkeel/base/check.h"
#include "evenkeel/step/internal/one_plan.h"
#include "evenkeel/step/internal/plan_per_chunk.h"

namespace evenkeel {

StepDecider::StepDecider(ByteModel& model, const DecisionOptions& options, int num_ranks)
    : options_(options),
      candidates_(std::make_unique<internal::OnePlan>(model, options_, num_ranks)),
      chunk_plans_(std::make_unique<internal::PlanPerChunk>(model, options_, num_ranks)),
      model_(model) {}

StepDecider::~StepDecider() = default;

void StepDecider::decide(const StepInputs& in, StepDecision& decision) {
  if (options_.plans_chunks) return decide_runs(in, decision);
  if (in.pass == StepPass::forward) in.planner->plan(in.counts, in.homes, decision.plan);
  // allocates now, before the memory is needed
  if (!in.homes.has_single_homes()) plain_plan_.begin(in.homes);
  candidates_->read(in);
  candidates_->follow(decision.plan, in.homes);
  decision.reason = reason_of_plan(decision.plan.spilled());
  if (in.pass == StepPass::forward)
    decide_forward(in, decision);
  else
    decide_backward(in, decision);
  decision.workspace = model_.workspaces();
  EVENKEEL_CHECK(in.holds_borrowed || !decision.chunks.empty());
}

// The part of a step that the planner's plan does not keep may run backward under plain EP.
void StepDecider::decide_forward(const StepInputs& in, StepDecision& decision) {
  const bool keeps_whole = candidates_->keeps() && candidates_->cuts_exactly();
  if (keeps_whole) candidates_->find_kept_whole();
  if (keeps_whole && take_best(0, decision)) return;
  const bool keep_all = options_.memory.recompute == Recompute::none && options_.with_backward;
  double backward_seconds = candidates_->estimate_backward_seconds();
  candidates_->find_forward(keep_all, backward_seconds);
  const internal::StepCandidate given{{}, candidates_->best().seconds, candidates_->best().recomputed_part};
  take_best(backward_seconds, decision);
  const bool fits = !decision.chunks.empty();
  const bool settled =
      fits && (options_.memory.keep_plan || (decision.chunks.size() == 1 && given.recomputed_part == 0));
  if (decision.plan.spilled() && !settled) {
    follow_plain(in);
    backward_seconds = std::min(backward_seconds, candidates_->estimate_backward_seconds());
    if (keeps_whole) candidates_->find_kept_whole();
    if (!keeps_whole || candidates_->best().chunks.empty())
      candidates_->find_forward(keep_all, backward_seconds);
    if (fits) decision.seconds = given.seconds_with(backward_seconds);
    take_plain_if_faster(in, backward_seconds, decision);
  }
  // The whole step could not be kept: the activations that other steps keep may leave no contiguous memory
  // for it.
  if (!keep_all || !decision.chunks.empty()) return;
  candidates_->find_forward(false, backward_seconds);
  take_best(backward_seconds, decision);
}

void StepDecider::decide_backward(const StepInputs& in, StepDecision& decision) {
  candidates_->find_backward();
  take_best(0, decision);
  if (in.holds_borrowed || !decision.plan.spilled() || decision.chunks.size() == 1) return;
  if (options_.memory.keep_plan && !decision.chunks.empty()) return;
  follow_plain(in);
  candidates_->find_backward();
  take_plain_if_faster(in, 0, decision);
}

// Tries equal chunks with a plan for each chunk: the smallest number of chunks that fits, up to 8. If none of
// these fits, tries 16 or 32 such chunks, and chunks that are each as long as fits. Also tries chunks that
// share one plan, and plain EP.
void StepDecider::decide_runs(const StepInputs& in, StepDecision& decision) {
  static constexpr std::array<std::int64_t, 8> few = {1, 2, 3, 4, 5, 6, 7, 8};
  static constexpr std::array<std::int64_t, 2> many = {16, 32};
  const ChunkRule& rule = options_.memory.rule;
  const bool by_bins = rule.kind == ChunkRule::Kind::mact;
  decision.chunks.clear();
  decision.refine.clear();
  decision.plans_chunks = true;
  decision.reason = StepReason::nothing_moves;  // the reason that stays if all blocks must be counted again
  decision.seconds = std::numeric_limits<double>::infinity();  // no candidate yet
  if (by_bins) {
    if (!take_equal(in, rule.bins, false, decision) && !take_equal(in, rule.bins, true, decision))
      decision.refine.push_back({0, in.table.num_blocks()});
    return;
  }
  const bool few_fit = take_equal(in, few, false, decision);
  if (few_fit && decision.chunks.size() == 1) return;
  if (!few_fit) take_equal(in, many, false, decision);
  in.planner->plan(in.counts, in.homes, decision.plan);
  candidates_->read(in);
  candidates_->follow(decision.plan, in.homes);
  take_runs_if_faster(reason_of_plan(decision.plan.spilled()), decision);
  if (options_.memory.keep_plan && !decision.chunks.empty()) return;
  if (!few_fit) take_longest_if_faster(in, decision);
  if (!decision.plan.spilled()) return;
  follow_plain(in);
  if (!take_runs_if_faster(StepReason::plain_is_faster, decision)) return;
  plain_planner_.plan(in.counts, in.homes, decision.plan);
}

bool StepDecider::take_runs_if_faster(StepReason reason, StepDecision& decision) {
  candidates_->find_runs();
  const internal::StepCandidate& candidate = candidates_->best();
  if (candidate.chunks.empty() || candidate.seconds >= decision.seconds) return false;
  decision.refine.clear();
  decision.plans_chunks = false;
  decision.reason = reason;
  return take_best(0, decision);
}

PlannedChunks StepDecider::equal_chunks(const StepInputs& in, int count, bool plain_ep) {
  PlannedChunks all;
  for (int i = 0; i < count; ++i) {
    const int blocks = in.table.num_blocks(), begin = i * blocks / count, end = (i + 1) * blocks / count;
    const PlannedChunks run =
        plain_ep ? chunk_plans_->stay(in, begin, end) : chunk_plans_->plan(in, begin, end, count == 1);
    all.bytes = std::max(all.bytes, run.bytes);
    all.seconds += run.seconds;
    all.moves |= run.moves;
  }
  return all;
}

// Takes the first number of chunks in `counts` with which the step fits, if it is faster than the decision so
// far. Returns false if it fits with none of them.
bool StepDecider::take_equal(const StepInputs& in, std::span<const std::int64_t> counts, bool plain_ep,
                             StepDecision& decision) {
  const std::int64_t blocks = in.table.num_blocks();
  for (const std::int64_t count : counts) {
    if (count > blocks) return false;
    const PlannedChunks all = equal_chunks(in, static_cast<int>(count), plain_ep);
    if (all.bytes > std::ranges::min(in.memories, {}, &RankMemory::free_bytes).free_bytes) continue;
    if (all.seconds >= decision.seconds) return true;
    decision.chunks.clear();
    decision.refine.clear();
    for (std::int64_t i = 0; i < count; ++i)
      decision.chunks.push_back(
          {i * blocks / count, (i + 1) * blocks / count, options_.with_backward && count == 1, plain_ep});
    decision.seconds = all.seconds;
    decision.reason = plain_ep ? StepReason::no_memory : reason_of_plan(all.moves);
    return true;
  }
  return false;
}

// Makes chunks as long as they fit. If a chunk fits only without moving work, the whole chunk is computed at
// home.
void StepDecider::take_longest_if_faster(const StepInputs& in, StepDecision& decision) {
  const std::int64_t limit = std::ranges::min(in.memories, {}, &RankMemory::free_bytes).free_bytes;
  std::vector<Chunk> chunks;
  std::vector<BlockRun> refine;
  double seconds = 0;
  StepReason reason = StepReason::nothing_moves;
  for (int begin = 0, end = 0; begin < in.table.num_blocks(); begin = end) {
    bool plain_ep = false;
    PlannedChunks run;
    const auto fits = [&](int to) {
      run = chunk_plans_->plan(in, begin, to, false);
      plain_ep = run.bytes > limit && run.moves;
      if (plain_ep) run = chunk_plans_->stay(in, begin, to);
      return run.bytes <= limit;
    };
    end = begin;
    for (int too_far = in.table.num_blocks() + 1; too_far - end > 1;) {
      const int middle = end + (too_far - end) / 2;
      (fits(middle) ? end : too_far) = middle;
    }
    if (end == begin) {
      refine.push_back({begin, ++end});
      seconds = std::numeric_limits<double>::infinity();
      continue;
    }
    fits(end);
    chunks.push_back({begin, end, false, plain_ep});
    seconds += run.seconds;
    if (plain_ep) reason = StepReason::no_memory;
    if (run.moves && reason == StepReason::nothing_moves) reason = StepReason::as_planned;
  }
  if (!decision.chunks.empty() && seconds >= decision.seconds) return;
  decision.chunks.swap(chunks);
  decision.refine.swap(refine);
  decision.plans_chunks = true;
  decision.seconds = seconds;
  decision.reason = reason;
}

// Returns false if nothing fits.
bool StepDecider::take_best(double backward_seconds, StepDecision& decision) {
  internal::StepCandidate& best = candidates_->best();
  decision.chunks.swap(best.chunks);
  decision.seconds = best.seconds_with(backward_seconds);
  return !decision.chunks.empty();
}

void StepDecider::take_plain_if_faster(const StepInputs& in, double backward_seconds,
                                       StepDecision& decision) {
  const internal::StepCandidate& plain = candidates_->best();
  const bool fits = !decision.chunks.empty();
  if (fits && (plain.chunks.empty() || plain.seconds_with(backward_seconds) >= decision.seconds)) return;
  decision.reason = fits ? StepReason::plain_is_faster : StepReason::no_memory;
  take_best(backward_seconds, decision);
  plain_planner_.plan(in.counts, in.homes, decision.plan);
}

// If each expert has only one home, plain EP needs no step plan.
void StepDecider::follow_plain(const StepInputs& in) {
  if (in.homes.has_single_homes()) return candidates_->stay_home(in.counts);
  plain_planner_.plan(in.counts, in.homes, plain_plan_);
  candidates_->follow(plain_plan_, in.homes);
}

}  // namespace evenkeel
