#include "evenkeel/layer/moe_layer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <utility>

#include "evenkeel/base/error.h"
#include "evenkeel/compute/cpu/expert_ffn.h"
#include "evenkeel/device/cpu/rows.h"
#include "evenkeel/layer/chunk_shape.h"
#include "evenkeel/layer/internal/agreement.h"
#include "evenkeel/layer/internal/borrowed_experts.h"
#include "evenkeel/layer/internal/expert_groups.h"
#include "evenkeel/layer/internal/layer_digests.h"
#include "evenkeel/layer/internal/native_experts.h"
#include "evenkeel/layer/internal/phase_clock.h"
#include "evenkeel/layer/internal/step_schedule.h"
#include "evenkeel/layer/saved_activations.h"

namespace evenkeel {

namespace {

// For what passes backward wants borrowed weights: with nothing to compute again, by chunk, or all at once;
// and where what was saved of a chunk comes first, for the others of its positions.
constexpr Pass kForward[] = {Pass::forward};
constexpr Pass kBackward[] = {Pass::backward};
constexpr Pass kBackwardAgain[] = {Pass::backward, Pass::recompute};
constexpr Pass kBackwardWhole[] = {Pass::backward, Pass::forward};
constexpr Pass kAgain[] = {Pass::recompute};

std::shared_ptr<const ExpertFfn> given_or_cpu(const MoeOptions& options, const MoeShape& shape) {
  if (options.experts == nullptr) return make_cpu_expert_ffn(shape.expert, options.with_backward);
  if (options.experts->shape() != shape.expert)
    throw InvalidArgument("experts", "made for another shape", "an ExpertFfn of the layer's shape");
  return options.experts;
}

void require_layer(const MoeShape& shape, const LayerPlacement& placement, const MoeOptions& options,
                   int ranks) {
  if (placement.num_experts() != shape.num_experts || placement.num_ranks() != ranks)
    throw InvalidArgument(
        "placement", fmt::format("{} experts on {} ranks", placement.num_experts(), placement.num_ranks()),
        fmt::format("{} experts on {} ranks", shape.num_experts, ranks));
  if (shape.top_k < 1) throw InvalidArgument("top_k", fmt::format("{}", shape.top_k), "1 or more");
  constexpr std::int64_t kMostAssignments = std::int64_t{1} << 30;
  if (options.max_tokens < 1 || options.max_tokens > kMostAssignments / shape.top_k / ranks)
    throw InvalidArgument("max_tokens", fmt::format("{}", options.max_tokens),
                          fmt::format("1..{}", kMostAssignments / shape.top_k / ranks));
  if (options.states_in_flight < 1)
    throw InvalidArgument("states_in_flight", fmt::format("{}", options.states_in_flight), "1 or more");
  const CostModel& cost = options.memory.cost;
  for (double rate : {cost.flops_per_second, cost.weight_bytes_per_second, cost.link_bytes_per_second})
    if (!(rate > 0)) throw InvalidArgument("cost", fmt::format("a rate of {}", rate), "rates above 0");
  if (!(cost.chunk_seconds >= 0))
    throw InvalidArgument("cost", fmt::format("{} s a chunk", cost.chunk_seconds), "0 or more");
}

// Messages read and write the buffers made before this, which must not go before they are done.
class SettledAtEnd {
 public:
  explicit SettledAtEnd(Stream& stream) : stream_(stream) {}
  SettledAtEnd(const SettledAtEnd&) = delete;
  SettledAtEnd& operator=(const SettledAtEnd&) = delete;
  ~SettledAtEnd() {
    try {
      stream_.synchronize();
    } catch (...) {  // NOLINT(bugprone-empty-catch): on the way out of what failed first
    }
  }

 private:
  Stream& stream_;
};

}  // namespace

// Where a chunk's sums of results go.
struct MoeLayer::Sums {
  std::span<const float> weights;
  void* output;
};

// A chunk's tokens in the caller's tensors.
struct MoeLayer::TokenRows {
  TopK top_k;
  const void* hidden;
  const void* grad_output;
  void* grad_hidden;
  std::span<float> grad_router_weights;
};

MoeLayer::MoeLayer(Communicator& comm, Arena& arena, const MoeShape& shape, LayerPlacement placement,
                   MoeOptions options)
    : comm_(comm),
      arena_(arena),
      shape_(shape),
      placement_(std::move(placement)),
      max_tokens_(options.max_tokens),
      with_backward_(options.with_backward),
      on_step_(std::move(options.on_step)),
      ffn_((require_layer(shape, placement_, options, comm.size()), given_or_cpu(options, shape))),
      planner_(make_planner(options.planner)),
      bitwise_(agree(options)),
      weights_comm_(comm.split(0)),
      natives_(std::make_unique<internal::NativeExperts>(*ffn_, placement_, comm.rank(), with_backward_)),
      borrowed_(std::make_unique<internal::BorrowedExperts>(*ffn_, arena, shape.num_experts)),
      borrowed_again_(std::make_unique<internal::BorrowedExperts>(*ffn_, arena, shape.num_experts)),
      groups_(std::make_unique<internal::ExpertGroups>(*natives_, *borrowed_, *borrowed_again_,
                                                       shape.num_experts)),
      clock_(std::make_unique<internal::PhaseClock>(std::move(options.on_phase))),
      owned_gradients_(static_cast<std::size_t>(shape.num_experts)),
      split_experts_(static_cast<std::size_t>(shape.num_experts)),
      exchange_(comm, stream_, arena, shape.expert.hidden, shape.expert.type),
      transfer_(*weights_comm_, arena, internal::part_elements(shape.expert), bytes_of(shape.expert.type)),
      budget_(budget_shape(options)),
      recompute_(options.memory.recompute) {
  const bool cuts = arena.is_bounded() || recompute_ == Recompute::whole || recompute_ == Recompute::chunk ||
                    options.memory.rule.kind != ChunkRule::Kind::exact;
  schedule_ =
      std::make_unique<internal::StepSchedule>(comm, arena, placement_, budget_, options.memory, cuts);
  if (arena.is_bounded()) set_room_aside(options.states_in_flight);
}

// The promise of a budget: what every step needs is claimed, and the choices of states have their places.
void MoeLayer::set_room_aside(int states) {
  const std::int64_t state = least_state_bytes(budget_) / states;
  arena_.claim(least_step_bytes(budget_), state, states);
  if (!with_backward_) return;
  const std::int64_t choices = state_bytes(budget_.chunk, max_tokens_);
  if (arena_.largest_gap_bytes() < arena_.claimed_step_bytes() + choices * states)
    throw InvalidArgument("arena", "states of its other layers keep what this layer needs",
                          "all layers made before the first step");
  choices_ = arena_.allocate(choices * states, "choices of states", Lifetime::held);
  for (int i = 0; i < states; ++i) pool_.free_choices.push_back(choices_.data() + i * choices);
}

BudgetShape MoeLayer::budget_shape(const MoeOptions& options) {
  BudgetShape budget;
  ChunkShape& chunk = budget.chunk = chunk_shape(shape_, comm_.size(), *ffn_, with_backward_);
  // Ranks with unlike CPUs may need unlike bytes, but must choose alike.
  std::int64_t* const theirs[] = {&chunk.saved_bytes,
                                  &chunk.saved_margin_bytes,
                                  &chunk.forward_workspace_bytes,
                                  &chunk.backward_workspace_bytes,
                                  &chunk.recompute_workspace_bytes,
                                  &chunk.forward_weight_bytes,
                                  &chunk.backward_weight_bytes,
                                  &chunk.recompute_weight_bytes};
  std::array<std::int64_t, std::size(theirs)> most;
  for (std::size_t i = 0; i < most.size(); ++i) most[i] = *theirs[i];
  comm_.all_reduce(most, Reduction::max, stream_, "workspaces").wait();
  for (std::size_t i = 0; i < most.size(); ++i) *theirs[i] = most[i];
  budget.max_tokens = max_tokens_;
  budget.states_in_flight = options.states_in_flight;
  budget.recompute = options.memory.recompute;
  for (RankId rank : indices<RankId>(comm_.size())) {
    const auto natives = placement_.natives(rank);
    budget.copies = std::max<std::int64_t>(
        budget.copies,
        std::ranges::count_if(natives, [&](ExpertId expert) { return placement_.owner(expert) != rank; }));
  }
  return budget;
}

std::int64_t MoeLayer::least_budget() const {
  return evenkeel::least_budget(budget_);
}

MoeLayer::~MoeLayer() = default;

// What must be equal is required; unlike CPUs only cost the promise of equal bits.
BitwiseReport MoeLayer::agree(const MoeOptions& options) const {
  internal::require_agreement(comm_, internal::digests_of(shape_, options, placement_, arena_.is_bounded()));
  BitwiseReport report = ffn_->bitwise();
  const internal::Digest arithmetic[] = {{"arithmetic", report.holds ? report.fingerprint : 0}};
  if (const int rank = internal::first_to_differ(comm_, arithmetic).front(); rank >= 0) {
    report.holds = false;
    report.reason = fmt::format("the CPU of rank {} multiplies to other bits than that of rank 0", rank);
  }
  return report;
}

void MoeLayer::set_weights(std::span<const ExpertWeights> natives) {
  natives_->set(natives);
}

void MoeLayer::set_planner(const PlannerOptions& options) {
  planner_ = make_planner(options);
}

template <class Body>
auto MoeLayer::abort_on_error(const Body& body) {
  try {
    return body();
  } catch (const std::exception& error) {
    comm_.abort(error.what());
    throw;
  }
}

const void* MoeLayer::row(ConstRows rows, std::int64_t first) const {
  return rows::at(rows.data, first * shape_.expert.hidden, shape_.expert.type);
}

void* MoeLayer::row(Rows rows, std::int64_t first) const {
  return rows::at(rows.data, first * shape_.expert.hidden, shape_.expert.type);
}

ForwardState MoeLayer::forward(ConstRows hidden, const TopK& top_k, Rows output) {
  return abort_on_error([&] {
    clock_->start(false);
    require_input(hidden, top_k, output);
    ForwardState state = begin(hidden, top_k);
    ForwardState::Body& step = *state.body_;
    clock_->enter(Phase::transfer);
    borrowed_->fetch(step.plan, natives_->parts(), kForward, transfer_);
    for (const Chunk& chunk : step.chunks) forward_chunk(step, chunk, top_k, output);
    clock_->leave_chunk(Phase::transfer);
    borrowed_->release();
    transfer_.finish();
    finish_step();
    return state;
  });
}

// The ranks' agreement on a step: its plan and its chunks.
ForwardState MoeLayer::begin(ConstRows hidden, const TopK& top_k) {
  ForwardState state = ForwardState::take(pool_);
  ForwardState::Body& step = *state.body_;
  schedule_->plan_forward(top_k, *planner_, step.plan);
  clock_->statistics().planning_seconds = schedule_->planning_seconds();
  step.chunks.assign(schedule_->chunks().begin(), schedule_->chunks().end());
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
  const StepPlan& plan = schedule_->next_chunk(part, step.plan);
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
  if (chunk.kept) step.kept.push_back({first, chunk.partly_kept(), std::move(dispatched), std::move(saved)});
}

// Of experts that the step's plan splits, results of this rank's own tokens are held a few at a time.
void MoeLayer::open_results(const Dispatched& dispatched, const StepPlan& plan) {
  for (ExpertId expert : indices<ExpertId>(shape_.num_experts))
    split_experts_[expert.offset()] = plan.splits(expert, placement_) ? 1 : 0;
  result_rows_.open(dispatched, comm_.rank(), split_experts_);
  result_rows_.hold_at_once(
      results_at_once(budget_.chunk, result_rows_.positions_in_runs(), std::ssize(result_rows_.runs())));
}

// As many as leave this pass and the backward pass their room.
std::int64_t MoeLayer::positions_to_save(const Dispatched& dispatched, const Chunk& chunk,
                                         const StepPlan& plan) const {
  if (!chunk.partly_kept()) return dispatched.positions_here;
  ChunkLoad load = load_of(dispatched);
  load.own_split = result_rows_.positions_in_runs();
  load.own_runs = std::ssize(result_rows_.runs());
  const std::int64_t held = held_bytes(budget_.chunk, load, 0);
  const std::int64_t gap = arena_.largest_gap_bytes();
  const std::int64_t backward_gap = gap + transfer_.borrows(plan) * borrowed_->bytes_each(kForward);
  const std::int64_t room = std::min(
      {gap - (forward_bytes(budget_.chunk, load, 0) - held),
       backward_gap - borrowing_bytes(plan, kBackward) - (backward_bytes(budget_.chunk, load, 0) - held),
       backward_gap - arena_.claimed_step_bytes(), arena_.spare_state_bytes() - held});
  return std::min(positions_saved_in(budget_.chunk, room), dispatched.positions_here);
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

void MoeLayer::backward(ForwardState state, ConstRows grad_output, const MoeGradients& gradients) {
  abort_on_error([&] {
    clock_->start(true);
    require_backward(state, grad_output, gradients);
    ForwardState::Body& step = *state.body_;
    drop_what_has_no_room(step);
    backward_kept(step, grad_output, gradients);
    backward_rest(step, grad_output, gradients);
    return_what_was_borrowed();
    finish_step();
  });
}

ChunkLoad MoeLayer::load_of(const Dispatched& dispatched) const {
  ChunkLoad load;
  load.tokens = dispatched.tokens;
  load.assignments_kept = dispatched.peers()[comm_.rank().offset()].in_positions;
  load.assignments = load.assignments_kept + dispatched.positions_elsewhere;
  load.positions_here = dispatched.positions_here;
  load.rows_here = dispatched.rows_here;
  load.rows_received = dispatched.rows_here - dispatched.own_rows;
  load.rows_elsewhere = dispatched.rows_elsewhere;
  load.groups = static_cast<std::int64_t>(dispatched.groups().size());
  return load;
}

// What was kept is let go where its backward pass does not fit beside what other steps hold now, or for want
// of room for what the plan borrows.
void MoeLayer::drop_what_has_no_room(ForwardState::Body& step) {
  if (!arena_.is_bounded() || step.chunks.empty() || !step.chunks.front().kept) return;
  if (schedule_->fits_everywhere(kept_fits(step))) return;
  step.kept.clear();
  for (Chunk& chunk : step.chunks) chunk.kept = false;
}

bool MoeLayer::kept_fits(const ForwardState::Body& step) const {
  // The rest is planned, and gradients arrive, when the kept chunks are gone, but what they borrow is not.
  const bool rest = !step.chunks.back().kept;
  const std::int64_t borrowing = borrowing_bytes(step.plan, rest ? again_passes() : kBackward);
  const std::int64_t gap = arena_.largest_gap_bytes();
  std::int64_t gap_behind = gap;
  for (const ForwardState::Kept& kept : step.kept) {
    const ChunkLoad load = load_of(kept.dispatched);
    const std::int64_t saved = kept.saved.positions();
    const std::int64_t held = held_bytes(budget_.chunk, load, saved);
    if (borrowing + backward_bytes(budget_.chunk, load, saved) - held > gap) return false;
    const std::int64_t gap_without = arena_.largest_gap_bytes_without(kept.saved.bytes());
    gap_behind = std::max(gap_behind, gap_without);
    if (!kept.partly) continue;
    const std::int64_t again = partly_again_bytes(budget_.chunk, load, transfer_.borrows(step.plan));
    if (borrowing + again - held_bytes(budget_.chunk, load, 0) > gap_without) return false;
  }
  const std::int64_t behind =
      rest ? std::max(budget_.chunk.gradient_bytes, block_table_bytes(budget_.chunk, 1))
           : budget_.chunk.gradient_bytes;
  return borrowing + behind <= gap_behind;
}

// Wherever gradients are of borrowed experts, they take no less than the weights did on their arrival.
std::int64_t MoeLayer::borrowing_bytes(const StepPlan& plan, std::span<const Pass> passes) const {
  return transfer_.borrows(plan) * borrowed_->bytes_each(passes) + transfer_.away_bytes(plan, placement_);
}

std::span<const Pass> MoeLayer::again_passes() const {
  if (recompute_ == Recompute::whole) return kBackwardWhole;
  return kBackwardAgain;
}

void MoeLayer::borrow_for_backward(const StepPlan& plan, std::span<const Pass> passes) {
  clock_->enter(Phase::transfer);
  borrowed_->fetch(plan, natives_->parts(), passes, transfer_);
  transfer_.open_gradients(plan, placement_);
  borrowing_ = true;
}

void MoeLayer::return_what_was_borrowed() {
  if (!borrowing_) return;
  clock_->leave_chunk(Phase::transfer);
  borrowed_->release();
  transfer_.return_gradients(owned_gradients_);
  transfer_.finish();
  borrowing_ = false;
}

MoeLayer::TokenRows MoeLayer::token_rows(const ForwardState::Body& step, std::int64_t first,
                                         std::int64_t tokens, ConstRows grad_output,
                                         const MoeGradients& gradients) const {
  const TopK part = step.top_k.part(first, tokens);
  return {
      part, row(step.hidden, first), row(grad_output, first), row(gradients.hidden, first),
      gradients.router_weights.subspan(static_cast<std::size_t>(first * shape_.top_k), part.weights.size())};
}

void MoeLayer::backward_kept(ForwardState::Body& step, ConstRows grad_output, const MoeGradients& gradients) {
  if (step.chunks.empty() || !step.chunks.front().kept) return;
  borrow_for_backward(step.plan, step.chunks.back().kept ? kBackward : again_passes());
  for (; !step.kept.empty(); step.kept.pop_back()) {
    ForwardState::Kept& kept = step.kept.back();
    clock_->enter_chunk(Phase::dispatch);
    backward_chunk(kept.dispatched, std::move(kept.saved),
                   token_rows(step, kept.first_token, kept.dispatched.tokens, grad_output, gradients),
                   gradients, kept.partly ? &step.plan : nullptr);
  }
}

// The tokens behind those that were kept are dispatched again, in chunks for which there is room now.
void MoeLayer::backward_rest(ForwardState::Body& step, ConstRows grad_output, const MoeGradients& gradients) {
  const auto rest_begin = std::ranges::find_if(step.chunks, [](const Chunk& chunk) { return !chunk.kept; });
  if (rest_begin == step.chunks.end()) return;
  clock_->leave_chunk(Phase::plan);
  const std::int64_t units = schedule_->units();
  const std::int64_t before = rest_begin->first_token(step.top_k.tokens, units);
  const TopK rest = step.top_k.part(before, step.top_k.tokens - before);
  if (borrowing_ && !schedule_->plan_rest(rest, borrowing_bytes(step.plan, again_passes()), step.plan))
    return_what_was_borrowed();
  if (!borrowing_) {
    clock_->enter(Phase::plan);
    schedule_->plan_backward(rest, step.plan);
    borrow_for_backward(step.plan, again_passes());
  }
  for (const Chunk& chunk : schedule_->chunks()) {
    clock_->enter_chunk(Phase::plan);
    const std::int64_t first = chunk.first_token(rest.tokens, units);
    const TokenRows tokens =
        token_rows(step, before + first, chunk.end_token(rest.tokens, units) - first, grad_output, gradients);
    const StepPlan& plan = schedule_->next_chunk(tokens.top_k, step.plan);
    clock_->enter(Phase::dispatch);
    Dispatched dispatched = exchange_.dispatch(tokens.hidden, tokens.top_k, schedule_->counts(), plan);
    backward_chunk(dispatched, save_again(dispatched, tokens.hidden, step.plan), tokens, gradients, nullptr);
  }
}

// For `whole`, all that forward computed, as frameworks do that know nothing of the experts within.
SavedActivations MoeLayer::save_again(const Dispatched& dispatched, const void* hidden,
                                      const StepPlan& plan) {
  const bool whole = recompute_ == Recompute::whole;
  SavedActivations saved(arena_, dispatched, whole ? dispatched.positions_here : 0, budget_.chunk,
                         Lifetime::step);
  if (!whole) return saved;
  clock_->statistics().recomputed_assignments += dispatched.positions_here;
  open_results(dispatched, plan);
  run_experts(dispatched, hidden, saved, std::nullopt);
  return saved;
}

// What was saved comes first, and makes room for what is computed again. Where some rank has both, all take
// part in fetching what that wants of the weights that `borrowed_later` has travel.
void MoeLayer::backward_chunk(Dispatched& dispatched, SavedActivations saved, const TokenRows& tokens,
                              const MoeGradients& gradients, const StepPlan* borrowed_later) {
  clock_->enter(Phase::dispatch);
  Exchange::GradientRows incoming =
      exchange_.dispatch_gradients(dispatched, tokens.grad_output, tokens.top_k.weights);
  Exchange::ComputedGradients computed = exchange_.gradient_buffer(dispatched, tokens.grad_hidden);
  const auto multiply = [&](Pass pass) {
    run_experts_backward(dispatched, pass, tokens, incoming, computed, gradients);
  };
  groups_->collect_saved(dispatched, saved);
  multiply(Pass::backward);
  saved.release();
  if (borrowed_later != nullptr) {
    clock_->enter(Phase::transfer);
    borrowed_again_->fetch(*borrowed_later, natives_->parts(), kAgain, transfer_);
  }
  groups_->collect_again(dispatched, saved);
  clock_->statistics().recomputed_assignments += groups_->positions();
  multiply(Pass::recompute);
  borrowed_again_->release();
  incoming = {};
  dispatched.release_rows();
  clock_->enter(Phase::combine);
  exchange_.combine_gradients(dispatched, std::move(computed), tokens.grad_hidden,
                              tokens.grad_router_weights);
}

void MoeLayer::run_experts_backward(const Dispatched& dispatched, Pass pass, const TokenRows& tokens,
                                    const Exchange::GradientRows& incoming,
                                    const Exchange::ComputedGradients& computed,
                                    const MoeGradients& gradients) {
  if (groups_->groups().empty()) return;
  clock_->enter(Phase::compute);
  const Buffer workspace = arena_.allocate(ffn_->workspace_bytes(pass), "products");
  attach_gradients(gradients);
  ffn_->backward({groups_->groups(), dispatched.input_row(), dispatched.output_row()},
                 dispatched.rows(tokens.hidden), dispatched.rows(tokens.grad_output, incoming.rows),
                 incoming.weights.as<const float>(), computed.sums, computed.weights.as<float>(),
                 workspace.bytes());
}

// Owners add to the caller's gradients, everyone else to what will be sent to the owner.
void MoeLayer::attach_gradients(const MoeGradients& gradients) {
  for (ExpertId expert : natives())
    if (placement_.owner(expert) == comm_.rank())
      owned_gradients_[expert.offset()] =
          internal::parts_of(gradients.experts[natives_->index(expert)], shape_.expert);
  for (std::size_t g = 0; g < groups_->groups().size(); ++g) {
    const ExpertId expert = groups_->experts()[g];
    const auto away = std::ranges::find(transfer_.away(), expert, &WeightTransfer::Away::expert);
    groups_->groups()[g].gradients = internal::gradients_of(
        away == transfer_.away().end() ? owned_gradients_[expert.offset()] : away->parts);
  }
}

void MoeLayer::finish_step() {
  const StepStatistics statistics = clock_->stop();
  if (on_step_) on_step_(statistics);
}

void MoeLayer::require_backward(const ForwardState& state, ConstRows grad_output,
                                const MoeGradients& gradients) const {
  if (!with_backward_) throw InvalidArgument("backward", "the layer was made without it", "with_backward");
  if (!state) throw InvalidArgument("state", "holds no forward step", "what forward returned, once");
  const TopK& top_k = state.body_->top_k;
  require_rows("grad_output", grad_output, top_k.tokens);
  require_rows("gradient of hidden", gradients.hidden, top_k.tokens);
  if (gradients.experts.size() != natives().size())
    throw InvalidArgument("gradients", fmt::format("of {} experts", gradients.experts.size()),
                          fmt::format("of the {} at home on this rank", natives().size()));
  if (gradients.router_weights.size() != top_k.weights.size())
    throw InvalidArgument("gradient of router weights",
                          fmt::format("{} numbers", gradients.router_weights.size()),
                          fmt::format("{}, one for each of the top-k", top_k.weights.size()));
}

void MoeLayer::require_rows(const char* name, ConstRows rows, std::int64_t tokens) const {
  const ExpertShape& expert = shape_.expert;
  if (rows.rows != tokens || rows.columns != expert.hidden || rows.type != expert.type)
    throw InvalidArgument(name, fmt::format("[{}, {}] {}", rows.rows, rows.columns, name_of(rows.type)),
                          fmt::format("[{}, {}] {}", tokens, expert.hidden, name_of(expert.type)));
  if (rows.data == nullptr && tokens > 0) throw InvalidArgument(name, "is null");
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
