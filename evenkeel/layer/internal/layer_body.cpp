#include "evenkeel/layer/internal/layer_body.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <utility>

#include "evenkeel/base/error.h"
#include "evenkeel/compute/cpu/expert_ffn.h"
#include "evenkeel/layer/chunk_shape.h"
#include "evenkeel/layer/internal/agreement.h"
#include "evenkeel/layer/internal/layer_digests.h"

namespace evenkeel::internal {

namespace {

void require_rates(const CostModel& cost) {
  for (double rate : {cost.flops_per_second, cost.weight_bytes_per_second, cost.link_bytes_per_second})
    if (!(rate >= CostModel::kLeastRate && rate <= CostModel::kMostRate))
      throw InvalidArgument("cost", fmt::format("a rate of {}", rate), "rates in 1..1e30");
  if (!(cost.overlap >= 0 && cost.overlap <= 1))
    throw InvalidArgument("cost", fmt::format("an overlap of {}", cost.overlap), "0..1");
  if (!(cost.chunk_seconds >= 0 && cost.chunk_seconds <= CostModel::kMostSeconds))
    throw InvalidArgument("cost", fmt::format("{} s a chunk", cost.chunk_seconds), "0..1e6");
}

void require_rule(const ChunkRule& rule) {
  if (rule.kind == ChunkRule::Kind::equal && rule.count < 1)
    throw InvalidArgument("rule", fmt::format("{} equal chunks", rule.count), "1 or more");
  const bool ascending = std::ranges::adjacent_find(rule.bins, std::greater_equal()) == rule.bins.end();
  if (rule.kind == ChunkRule::Kind::mact && (rule.bins.empty() || rule.bins.front() < 1 || !ascending))
    throw InvalidArgument("rule", "bins that do not ascend from 1 or more", "such as 1, 2, 4, 8");
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
  require_rule(options.memory.rule);
  require_rates(options.memory.cost);
}

std::shared_ptr<const ExpertFfn> given_or_cpu(const MoeOptions& options, const MoeShape& shape) {
  if (options.experts == nullptr) return make_cpu_expert_ffn(shape.expert, options.with_backward);
  if (options.experts->shape() != shape.expert)
    throw InvalidArgument("experts", "made for another shape", "an ExpertFfn of the layer's shape");
  return options.experts;
}

// Throws where ranks differ in arguments that must be equal. Unlike CPUs only cost the promise of equal bits.
BitwiseReport agree(Communicator& comm, const std::vector<Digest>& digests, const ExpertFfn& ffn) {
  require_agreement(comm, digests);
  BitwiseReport report = ffn.bitwise();
  const Digest arithmetic[] = {{"arithmetic", report.holds ? report.fingerprint : 0}};
  if (const int rank = first_to_differ(comm, arithmetic).front(); rank >= 0) {
    report.holds = false;
    report.reason = fmt::format("the CPU of rank {} multiplies to other bits than that of rank 0", rank);
  }
  return report;
}

// Ranks with unlike CPUs may need unlike bytes, but must choose alike.
void take_the_most(ChunkShape& chunk, Communicator& comm) {
  std::int64_t* const theirs[] = {&chunk.saved_bytes,
                                  &chunk.saved_margin_bytes,
                                  &chunk.workspace.forward,
                                  &chunk.workspace.backward,
                                  &chunk.workspace.recompute,
                                  &chunk.most_workspace.forward,
                                  &chunk.most_workspace.backward,
                                  &chunk.most_workspace.recompute,
                                  &chunk.forward_weight_bytes,
                                  &chunk.backward_weight_bytes,
                                  &chunk.recompute_weight_bytes};
  std::array<std::int64_t, std::size(theirs)> most;
  for (std::size_t i = 0; i < most.size(); ++i) most[i] = *theirs[i];
  CpuStream stream;
  comm.all_reduce(most, Reduction::max, stream, "workspaces").wait();
  for (std::size_t i = 0; i < most.size(); ++i) *theirs[i] = most[i];
}

BudgetShape agreed(BudgetShape budget, Communicator& comm) {
  take_the_most(budget.chunk, comm);
  return budget;
}

bool cuts_steps(const MemoryOptions& options, const Arena& arena) {
  return arena.is_bounded() || options.recompute == Recompute::whole ||
         options.recompute == Recompute::chunk || options.rule.kind != ChunkRule::Kind::exact;
}

}  // namespace

// Has planned a step of no tokens, so that it takes no memory in a later one.
std::unique_ptr<Planner> warm_planner(const PlannerOptions& options, const LayerPlacement& placement) {
  std::unique_ptr<Planner> planner = make_planner(options);
  StepPlan plan;
  planner->plan(Counts(placement.num_ranks(), placement.num_experts()), placement, plan);
  return planner;
}

LayerBody::LayerBody(Communicator& communicator, Arena& memory, const MoeShape& moe, LayerPlacement homes,
                     MoeOptions options)
    : comm(communicator),
      arena(memory),
      shape(moe),
      placement(std::move(homes)),
      max_tokens(options.max_tokens),
      with_backward(options.with_backward),
      on_step(std::move(options.on_step)),
      ffn((require_layer(shape, placement, options, comm.size()), given_or_cpu(options, shape))),
      planner(warm_planner(options.planner, placement)),
      bitwise(agree(comm, digests_of(shape, options, placement, arena.is_bounded()), *ffn)),
      weights_comm(comm.split(0)),
      natives(*ffn, placement, comm.rank(), with_backward),
      borrowed(*ffn, arena, shape.num_experts),
      groups(natives, borrowed, shape.num_experts),
      clock(std::move(options.on_phase)),
      owned_gradients(static_cast<std::size_t>(shape.num_experts)),
      split_experts(static_cast<std::size_t>(shape.num_experts)),
      exchange(comm, stream, arena, shape.expert.hidden, shape.expert.type),
      transfer(*weights_comm, arena, part_elements(shape.expert), bytes_of(shape.expert.type)),
      budget(agreed(budget_shape(shape, placement, *ffn, options), comm)),
      recompute(options.memory.recompute),
      schedule(comm, arena, placement, budget, options.memory, cuts_steps(options.memory, arena)),
      workspace(schedule.workspace()) {
  if (arena.is_bounded()) set_bytes_aside();
  // So that no step takes memory for its first operation or its deal.
  stream.reserve();
  StepPlan any;
  any.begin(placement);
  exchange.reserve(any, shape.top_k);
  transfer.reserve(any);
  result_rows.reserve(static_cast<std::size_t>(shape.num_experts));
}

// The promise of a budget: what every step needs is claimed, and the choices of states have their places.
void LayerBody::set_bytes_aside() {
  const int states = budget.states_in_flight;
  arena.claim(least_step_bytes(budget), least_state_bytes(budget) / states, states);
  if (!with_backward) return;
  const std::int64_t each = state_bytes(budget.chunk, max_tokens);
  if (arena.largest_gap_bytes() < arena.claimed_step_bytes() + each * states)
    throw InvalidArgument("arena", "states of its other layers keep what this layer needs",
                          "all layers made before the first step");
  choices = arena.allocate(each * states, "choices of states", Lifetime::held);
  for (int i = 0; i < states; ++i) pool.set_aside(choices.data() + i * each);
}

void LayerBody::require_rows(const char* name, ConstRows rows, std::int64_t tokens) const {
  const ExpertShape& expert = shape.expert;
  if (rows.rows != tokens || rows.columns != expert.hidden || rows.type != expert.type)
    throw InvalidArgument(name, fmt::format("[{}, {}] {}", rows.rows, rows.columns, name_of(rows.type)),
                          fmt::format("[{}, {}] {}", tokens, expert.hidden, name_of(expert.type)));
  if (rows.data == nullptr && tokens > 0) throw InvalidArgument(name, "is null");
}

void LayerBody::borrow_for_forward(const StepPlan& plan) {
  clock.enter(Phase::transfer);
  borrowed.fetch(plan, natives.parts(), kForward, transfer);
  borrowing = true;
}

void LayerBody::give_back_in_forward() {
  clock.leave_chunk(Phase::transfer);
  borrowed.release();
  transfer.finish();
  borrowing = false;
}

void LayerBody::borrow_for_backward(const StepPlan& plan, std::span<const Pass> passes) {
  clock.enter(Phase::transfer);
  borrowed.fetch(plan, natives.parts(), passes, transfer);
  transfer.open_gradients(plan, placement);
  borrowing = true;
}

void LayerBody::give_back_in_backward() {
  if (!borrowing) return;
  clock.leave_chunk(Phase::transfer);
  borrowed.release();
  transfer.return_gradients(owned_gradients);
  transfer.finish();
  borrowing = false;
}

void LayerBody::finish_step() {
  const StepStatistics statistics = clock.stop();
  if (on_step) on_step(statistics);
}

}  // namespace evenkeel::internal
