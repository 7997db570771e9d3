// The forward pass of a layer: plan, borrow, and chunk by chunk dispatch, compute, combine.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "evenkeel/base/error.h"
#include "evenkeel/layer/internal/borrowed_experts.h"
#include "evenkeel/layer/internal/expert_groups.h"
#include "evenkeel/layer/internal/native_experts.h"
#include "evenkeel/layer/internal/phase_clock.h"
#include "evenkeel/layer/internal/step_schedule.h"
#include "evenkeel/layer/moe_layer.h"
#include "evenkeel/layer/saved_activations.h"

namespace evenkeel {

namespace {

// Messages read and write the buffers made before this, which must not go before they are done.
class SettledAtEnd {
 public:
  explicit SettledAtEnd(Stream& stream) : stream_(stream) {}
  SettledAtEnd(const SettledAtEnd&) = delete;
  SettledAtEnd& operator=(const SettledAtEnd&) = delete;
  ~SettledAtEnd() {
    try {
      stream_.synchronize();
    } catch (...) {  // on the way out of what failed first
    }
  }

 private:
  Stream& stream_;
};

}  // namespace

ForwardState MoeLayer::forward(ConstRows hidden, const TopK& top_k, Rows output) {
  return abort_on_error([&] {
    clock_->start(false);
    require_input(hidden, top_k, output);
    ForwardState state = begin(hidden, top_k);
    ForwardState::Body& step = *state.body_;
    for (std::span<const Chunk> chunks = step.chunks; !chunks.empty(); chunks = chunks.subspan(1)) {
      if (chunks.size() > 1 && overlaps(chunks.front().kept)) {
        forward_overlapped(step, chunks, top_k, output);
        break;
      }
      if (!borrowing_) borrow_for_forward(step.plan);
      forward_chunk(step, chunks.front(), top_k, output);
    }
    clock_->leave_chunk(Phase::transfer);
    borrowed_->release();
    transfer_.finish();
    borrowing_ = false;
    finish_step();
    return state;
  });
}

void MoeLayer::borrow_for_forward(const StepPlan& plan) {
  clock_->enter(Phase::transfer);
  borrowed_->fetch(plan, natives_->parts(), internal::kForward, transfer_);
  borrowing_ = true;
}

// The ranks' agreement on a step: its plan and its chunks.
ForwardState MoeLayer::begin(ConstRows hidden, const TopK& top_k) {
  ForwardState state = ForwardState::take(pool_);
  ForwardState::Body& step = *state.body_;
  schedule_->plan_forward(top_k, *planner_, step.plan);
  clock_->statistics().planning_seconds = schedule_->planning_seconds();
  step.chunks.reserve(static_cast<std::size_t>(schedule_->units()));
  step.chunks.assign(schedule_->chunks().begin(), schedule_->chunks().end());
  step.kept.reserve(kStepBlocks);
  step.hidden = hidden;
  if (with_backward_) save_choices(step, top_k);
  return state;
}

void MoeLayer::save_choices(ForwardState::Body& step, const TopK& top_k) {
  const auto bytes = static_cast<std::int64_t>(top_k.experts.size_bytes());
  std::byte* at = nullptr;
  if (arena_.is_bounded()) {
    if (pool_.free_choices.empty())
      throw InvalidArgument("forward", "more states are alive than the layer was made for",
                            "a larger states_in_flight, or backward before the next forward");
    at = step.choices = pool_.free_choices.back();
    pool_.free_choices.pop_back();
  } else {
    step.own_choices = arena_.allocate(2 * Arena::rounded(bytes), "choices", Lifetime::held);
    at = step.own_choices.data();
  }
  const std::span experts(reinterpret_cast<std::int32_t*>(at), top_k.experts.size());
  const std::span weights(reinterpret_cast<float*>(at + Arena::rounded(bytes)), top_k.weights.size());
  std::ranges::copy(top_k.experts, experts.begin());
  std::ranges::copy(top_k.weights, weights.begin());
  step.top_k = {top_k.tokens, top_k.k, experts, weights};
}

void MoeLayer::forward_chunk(ForwardState::Body& step, const Chunk& chunk, const TopK& top_k, Rows output) {
  clock_->enter_chunk(Phase::plan);
  const std::int64_t first = chunk.first_token(top_k.tokens, schedule_->units());
  const TopK part = top_k.part(first, chunk.end_token(top_k.tokens, schedule_->units()) - first);
  schedule_->announce(part);
  const StepPlan& plan = schedule_->next_chunk(step.plan);
  clock_->enter(Phase::dispatch);
  const Lifetime lifetime = chunk.kept ? Lifetime::held : Lifetime::step;
  Dispatched dispatched =
      exchange_.dispatch(row(step.hidden, first), part, schedule_->counts(), plan, lifetime);
  clock_->statistics().assignments += dispatched.positions_here;
  open_results(dispatched, step.plan);
  SavedActivations saved;
  if (chunk.kept)
    saved = {arena_, dispatched, positions_to_save(dispatched, chunk, step.plan), budget_.chunk,
             Lifetime::held};
  run_experts(dispatched, row(step.hidden, first), saved, Sums{part.weights, row(output, first)});
  if (chunk.kept) step.kept.push_back({first, chunk, std::move(dispatched), std::move(saved)});
}

// Of experts that the step's plan splits, results of this rank's own tokens are held a few at a time.
void MoeLayer::open_results(const Dispatched& dispatched, const StepPlan& plan) {
  for (ExpertId expert : indices<ExpertId>(shape_.num_experts))
    split_experts_[expert.offset()] = plan.splits(expert, placement_) ? 1 : 0;
  result_rows_.open(dispatched, comm_.rank(), split_experts_);
  result_rows_.hold_at_once(
      results_at_once(budget_.chunk, result_rows_.positions_in_runs(), std::ssize(result_rows_.runs())));
}

// The experts' forward pass over a chunk, and its sums where they are wanted.
void MoeLayer::run_experts(const Dispatched& dispatched, const void* hidden, const SavedActivations& saved,
                           const std::optional<Sums>& sums) {
  clock_->enter(Phase::compute);
  const bool in_ranges = !result_rows_.runs().empty();
  const Buffer own_rows =
      arena_.allocate_for<std::int32_t>(in_ranges ? dispatched.positions_here : 0, "result rows");
  const auto rows = own_rows.as<std::int32_t>();
  if (in_ranges) result_rows_.fill(rows);
  const Buffer results = exchange_.result_buffer(result_rows_);
  const Buffer workspace = arena_.allocate(ffn_->workspace_bytes(Pass::forward), "products");
  const auto multiply = [&] {
    if (groups_->groups().empty()) return;
    ffn_->forward({groups_->groups(), dispatched.input_row(), in_ranges ? rows : dispatched.output_row()},
                  dispatched.rows(hidden), results.data(), workspace.bytes());
  };
  groups_->collect_waiting(dispatched, result_rows_, saved);
  multiply();
  // What others wait for is on its way while this rank's own are computed.
  clock_->enter(Phase::combine);
  const SettledAtEnd settled(stream_);
  if (sums) exchange_.return_results(dispatched, results, result_rows_);
  while (result_rows_.next_range(rows)) {
    clock_->enter(Phase::compute);
    groups_->collect_range(dispatched, result_rows_, saved);
    multiply();
    clock_->enter(Phase::combine);
    stream_.synchronize();
    if (sums) exchange_.sum_results(dispatched, results, result_rows_, sums->weights, sums->output);
  }
  stream_.synchronize();
}

void MoeLayer::require_input(ConstRows hidden, const TopK& top_k, ConstRows output) const {
  if (!natives_->are_set()) throw InvalidArgument("weights", "are not set", "set_weights before forward");
  if (top_k.tokens < 0 || top_k.tokens > max_tokens_)
    throw InvalidArgument("top_k", fmt::format("{} tokens", top_k.tokens), fmt::format("0..{}", max_tokens_));
  const auto choices = static_cast<std::size_t>(top_k.tokens * shape_.top_k);
  if (top_k.k != shape_.top_k || top_k.experts.size() != choices || top_k.weights.size() != choices)
    throw InvalidArgument("top_k",
                          fmt::format("{} tokens, k = {}, {} experts, {} weights", top_k.tokens, top_k.k,
                                      top_k.experts.size(), top_k.weights.size()),
                          fmt::format("k = {}, and tokens * k experts and weights", shape_.top_k));
  require_rows("hidden", hidden, top_k.tokens);
  require_rows("output", output, top_k.tokens);
}

}  // namespace evenkeel
