#include "evenkeel/layer/moe_layer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
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

namespace evenkeel {

namespace {

std::shared_ptr<const ExpertFfn> given_or_cpu(const MoeOptions& options, const MoeShape& shape) {
  if (options.experts == nullptr) return make_cpu_expert_ffn(shape.expert, options.with_backward);
  if (options.experts->shape() != shape.expert)
    throw InvalidArgument("experts", "made for another shape", "an ExpertFfn of the layer's shape");
  return options.experts;
}

// Two operations a weight of the layer's type.
std::int64_t positions_a_group(const CostModel& cost, const ExpertShape& shape) {
  const double positions =
      cost.flops_per_second * static_cast<double>(bytes_of(shape.type)) / 2 / cost.weight_bytes_per_second;
  constexpr double kMost = 1 << 20;
  return static_cast<std::int64_t>(std::min(positions, kMost));
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
  const int in_flight = options.memory.chunks_in_flight;
  if (in_flight < 1 || in_flight > 2)
    throw InvalidArgument("chunks_in_flight", fmt::format("{}", in_flight), "1 or 2");
  if (in_flight > 1 && options.memory.recompute == Recompute::whole)
    throw InvalidArgument("chunks_in_flight", "2, where a whole layer is computed again at once",
                          "1, or another recompute");
  const CostModel& cost = options.memory.cost;
  for (double rate : {cost.flops_per_second, cost.weight_bytes_per_second, cost.link_bytes_per_second})
    if (!(rate > 0)) throw InvalidArgument("cost", fmt::format("a rate of {}", rate), "rates above 0");
  if (!(cost.chunk_seconds >= 0))
    throw InvalidArgument("cost", fmt::format("{} s a chunk", cost.chunk_seconds), "0 or more");
}

// Has planned a step of no tokens, so that it takes no memory in a later one.
std::unique_ptr<Planner> warm_planner(const PlannerOptions& options, const LayerPlacement& placement) {
  std::unique_ptr<Planner> planner = make_planner(options);
  StepPlan plan;
  planner->plan(Counts(placement.num_ranks(), placement.num_experts()), placement, plan);
  return planner;
}

}  // namespace

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
      planner_(warm_planner(options.planner, placement_)),
      bitwise_(agree(options)),
      weights_comm_(comm.split(0)),
      natives_(std::make_unique<internal::NativeExperts>(*ffn_, placement_, comm.rank(), with_backward_)),
      borrowed_(std::make_unique<internal::BorrowedExperts>(*ffn_, arena, shape.num_experts)),
      groups_(std::make_unique<internal::ExpertGroups>(*natives_, *borrowed_, shape.num_experts)),
      clock_(std::make_unique<internal::PhaseClock>(std::move(options.on_phase))),
      owned_gradients_(static_cast<std::size_t>(shape.num_experts)),
      split_experts_(static_cast<std::size_t>(shape.num_experts)),
      exchange_(comm, stream_, arena, shape.expert.hidden, shape.expert.type),
      overlapped_(comm, exchange_),
      transfer_(*weights_comm_, arena, internal::part_elements(shape.expert), bytes_of(shape.expert.type)),
      budget_(budget_shape(options)),
      recompute_(options.memory.recompute),
      chunks_in_flight_(options.memory.chunks_in_flight),
      positions_a_group_(positions_a_group(options.memory.cost, shape.expert)) {
  const bool cuts = arena.is_bounded() || recompute_ == Recompute::whole || recompute_ == Recompute::chunk ||
                    options.memory.rule.kind != ChunkRule::Kind::exact;
  schedule_ =
      std::make_unique<internal::StepSchedule>(comm, arena, placement_, budget_, options.memory, cuts);
  if (arena.is_bounded()) set_room_aside(options.states_in_flight);
  StepPlan any;  // so that no step takes memory for its deal
  any.begin(placement_);
  exchange_.reserve(any);
  overlapped_.reserve(any);
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
  budget.chunks_in_flight = options.memory.chunks_in_flight;
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
  planner_ = warm_planner(options, placement_);
}

const void* MoeLayer::row(ConstRows rows, std::int64_t first) const {
  return rows::at(rows.data, first * shape_.expert.hidden, shape_.expert.type);
}

void* MoeLayer::row(Rows rows, std::int64_t first) const {
  return rows::at(rows.data, first * shape_.expert.hidden, shape_.expert.type);
}

void MoeLayer::finish_step() {
  const StepStatistics statistics = clock_->stop();
  if (on_step_) on_step_(statistics);
}

void MoeLayer::require_rows(const char* name, ConstRows rows, std::int64_t tokens) const {
  const ExpertShape& expert = shape_.expert;
  if (rows.rows != tokens || rows.columns != expert.hidden || rows.type != expert.type)
    throw InvalidArgument(name, fmt::format("[{}, {}] {}", rows.rows, rows.columns, name_of(rows.type)),
                          fmt::format("[{}, {}] {}", tokens, expert.hidden, name_of(expert.type)));
  if (rows.data == nullptr && tokens > 0) throw InvalidArgument(name, "is null");
}

}  // namespace evenkeel
