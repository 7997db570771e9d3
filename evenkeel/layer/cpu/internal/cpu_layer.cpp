#include "evenkeel/layer/cpu/internal/cpu_layer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>

#include "evenkeel/base/error.h"
#include "evenkeel/compute/cpu/expert_ffn.h"
#include "evenkeel/layer/chunk_shape.h"
#include "evenkeel/layer/internal/expert_parts.h"

namespace evenkeel::internal {

namespace {

void require_rule(const ChunkRule& rule) {
  if (rule.kind == ChunkRule::Kind::equal && rule.count < 1)
    throw InvalidArgument("rule", fmt::format("{} equal chunks", rule.count), "1 or more");
  const bool ascending = std::ranges::adjacent_find(rule.bins, std::greater_equal()) == rule.bins.end();
  if (rule.kind == ChunkRule::Kind::mact && (rule.bins.empty() || rule.bins.front() < 1 || !ascending))
    throw InvalidArgument("rule", "bins must ascend and start at 1 or more", "bins such as 1, 2, 4, 8");
}

// Returns the layer if a CPU can run it; throws otherwise.
const LayerParts& checked(const LayerParts& layer) {
  const MemoryOptions& memory = layer.options.cpu().memory;
  require_rule(memory.rule);
  require_machine(memory.cost, "cost");
  if (layer.arena.gpu() >= 0)
    throw InvalidArgument("arena", fmt::format("is on GPU {}", layer.arena.gpu()),
                          "one on the CPU, or options.device = on_gpu(stream)");
  return layer;
}

std::shared_ptr<const ExpertFfn> given_or_cpu(const LayerParts& layer) {
  const std::shared_ptr<const ExpertFfn>& given = layer.options.cpu().experts;
  const ExpertShape& shape = layer.shape.expert;
  if (given == nullptr) return make_cpu_expert_ffn(shape, layer.options.with_backward);
  if (given->shape() != shape)
    throw InvalidArgument("experts", "made for another shape", "an ExpertFfn of the layer's shape");
  return given;
}

// Plans a step without tokens, so that the planner does not allocate in later steps.
std::unique_ptr<Planner> warm_planner(const PlannerOptions& options, const LayerPlacement& placement) {
  std::unique_ptr<Planner> planner = make_planner(options);
  StepPlan plan;
  planner->plan(Counts(placement.num_ranks(), placement.num_experts()), placement, plan);
  return planner;
}

// Different CPUs and sum_in_nodes are allowed, but then equal bits are not guaranteed.
BitwiseReport common_bits(Communicator& comm, const ExpertFfn& ffn, const CpuOptions& options) {
  BitwiseReport report = ffn.bitwise();
  const Digest arithmetic[] = {{"arithmetic", report.holds ? report.fingerprint : 0}};
  if (const int rank = first_to_differ(comm, arithmetic).front(); rank >= 0) {
    report.holds = false;
    report.reason = fmt::format("matrix products on rank {}'s CPU round differently than on rank 0's", rank);
  }
  if (options.sum_in_nodes) {
    report.holds = false;
    report.reason = "sum_in_nodes adds a token's results in the order that the plan gives";
  }
  return report;
}

// Ranks with different CPUs may need different bytes but must decide alike, so all use the maximum.
BudgetShape agreed(BudgetShape budget, Communicator& comm) {
  ChunkShape& chunk = budget.chunk;
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
  return budget;
}

bool cuts_steps(const LayerParts& layer) {
  const MemoryOptions& options = layer.options.cpu().memory;
  return layer.arena.is_bounded() || options.recompute == Recompute::whole ||
         options.recompute == Recompute::chunk || options.rule.kind != ChunkRule::Kind::exact;
}

}  // namespace

CpuLayer::CpuLayer(const LayerParts& layer)
    : parts(checked(layer)),
      ffn(given_or_cpu(layer)),
      planner(warm_planner(layer.options.planner, layer.placement)),
      bits(common_bits(layer.comm, *ffn, layer.options.cpu())),
      weights_comm(layer.comm.split(0)),
      experts(*ffn, layer.arena, layer.placement, layer.comm.rank(), layer.options.with_backward),
      clock(layer.options.cpu().on_phase),
      exchange(layer.comm, stream, layer.arena, layer.shape.expert.hidden, layer.shape.expert.type,
               Nodes(layer.options.cpu().node_of_rank), layer.options.cpu().sum_in_nodes),
      transfer(*weights_comm, layer.arena, part_elements(layer.shape.expert),
               bytes_of(layer.shape.expert.type), Nodes(layer.options.cpu().node_of_rank)),
      budget(agreed(budget_shape(layer.shape, layer.placement, *ffn, layer.options), layer.comm)),
      schedule(layer.comm, layer.arena, layer.placement, budget, layer.options.cpu().memory,
               cuts_steps(layer)),
      owned_gradients(static_cast<std::size_t>(layer.shape.num_experts)),
      split_experts(owned_gradients.size()) {
  if (layer.arena.is_bounded()) set_bytes_aside();
  // Reserve now, so that no step allocates.
  groups.reserve(2 * owned_gradients.size());  // leaving out a local run splits a group in two
  result_rows.reserve(owned_gradients.size());
  stream.reserve();
  StepPlan any;
  any.begin(layer.placement);
  exchange.reserve(any, layer.shape.top_k);
  transfer.reserve(any);
}

std::unique_ptr<LayerBackend> make_cpu_layer(const LayerParts& layer) {
  return std::make_unique<CpuLayer>(layer);
}

// Makes sure that every step can run within the budget: claims the bytes that every step needs, and allocates
// memory for the states' choices.
void CpuLayer::set_bytes_aside() {
  Arena& arena = parts.arena;
  const int states = budget.states_in_flight;
  arena.claim(least_step_bytes(budget), least_state_bytes(budget) / states, states);
  if (!parts.options.with_backward) return;
  const std::int64_t each = state_bytes(budget.chunk, parts.options.max_tokens);
  if (arena.largest_gap_bytes() < arena.claimed_step_bytes() + each * states)
    throw InvalidArgument("arena", "states of other layers hold the memory that this layer needs",
                          "to make all layers before the first step");
  choices = arena.allocate(each * states, "choices of states", Lifetime::held);
  for (int i = 0; i < states; ++i) pool.set_aside(choices.data() + i * each);
}

void CpuLayer::set_planner(const PlannerOptions& options) {
  planner = warm_planner(options, parts.placement);
}

void CpuLayer::finish_step() {
  const StepStatistics statistics = clock.stop();
  if (parts.options.cpu().on_step) parts.options.cpu().on_step(statistics);
}

StepReport CpuLayer::report(const StepState& state) {
  const auto& step = static_cast<const SavedStep&>(state);
  const StepPlan& plan = step.plan();
  const std::int64_t borrowed = transfer.borrows(plan);
  return {.chunks = static_cast<int>(std::ssize(step.chunks())),
          .transfers = static_cast<int>(std::ssize(plan.transfers())),
          .reason = step.decision.reason,
          .borrowed = static_cast<int>(borrowed),
          .weights_sent = borrowed,
          .rank_loads = {plan.rank_loads().begin(), plan.rank_loads().end()}};
}

}  // namespace evenkeel::internal
