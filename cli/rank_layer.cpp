#include "cli/rank_layer.h"

#include <algorithm>
#include <utility>

#include "evenkeel/base/error.h"
#include "evenkeel/compute/cpu/expert_ffn.h"
#include "evenkeel/layer/chunk_shape.h"

namespace evenkeel::cli {

namespace {

MoeOptions options_of(const ExperimentSetup& setup, const Budget& budget, std::int64_t max_tokens) {
  MoeOptions options;
  options.planner = setup.reference.planner;
  options.max_tokens = max_tokens;
  options.with_backward = setup.backward;
  options.memory = budget.memory;
  if (!setup.backward) options.memory.recompute = Recompute::automatic;  // there is nothing to keep
  return options;
}

}  // namespace

void require_budgets(const ExperimentSetup& setup, std::int64_t max_tokens) {
  const std::int64_t tokens = std::max<std::int64_t>(max_tokens, 1);  // as layers are made
  const auto experts = make_cpu_expert_ffn(setup.shape.expert, setup.backward);
  const auto require = [&](const Budget& budget) {
    if (!budget.is_given()) return;
    const std::int64_t least =
        least_budget(budget_shape(setup.shape, setup.placement, *experts, options_of(setup, budget, tokens)));
    if (budget.bytes < least) throw BudgetTooSmall(budget.bytes, least, "the steps of a layer");
  };
  require(setup.reference.budget);
  for (const Candidate& candidate : setup.candidates) require(candidate.budget);
}

RankLayer::RankLayer(Communicator& comm, const ExperimentSetup& setup, const Budget& budget,
                     std::int64_t max_tokens, std::shared_ptr<const ExpertFfn> experts)
    : arena_(Device::cpu(), budget.bytes),
      layer_(comm, arena_, setup.shape, setup.placement,
             options(setup, budget, max_tokens, std::move(experts))) {}

MoeOptions RankLayer::options(const ExperimentSetup& setup, const Budget& budget, std::int64_t max_tokens,
                              std::shared_ptr<const ExpertFfn> experts) {
  MoeOptions options = options_of(setup, budget, max_tokens);
  options.experts = std::move(experts);
  options.on_step = [this](const StepStatistics& step) { note(step); };
  if (setup.timelines) {
    timeline_.emplace(arena_);
    options.on_phase = [this](const StepMoment& moment) { timeline_->enter(moment); };
  }
  return options;
}

void RankLayer::restart_timeline() {
  if (timeline_) timeline_->restart();
}

void RankLayer::note(const StepStatistics& step) {
  if (sample_ == nullptr) return;
  sample_->cpu_seconds[step.backward ? 1 : 0] = step.cpu_seconds;
  sample_->planning_seconds += step.planning_seconds;
  sample_->assignments += step.assignments;
  sample_->recomputed_assignments += step.recomputed_assignments;
  if (!step.backward) sample_->chunks = step.chunks;
}

}  // namespace evenkeel::cli
