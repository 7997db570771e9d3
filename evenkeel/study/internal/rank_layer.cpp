#include "evenkeel/study/internal/rank_layer.h"

#include <utility>

namespace evenkeel::internal {

MoeOptions layer_options(const ExperimentSetup& setup, const Budget& budget, std::int64_t max_tokens) {
  MoeOptions options;
  options.planner = setup.reference.planner;
  options.max_tokens = max_tokens;
  options.with_backward = setup.backward;
  options.memory = budget.memory;
  if (!setup.backward) options.memory.recompute = Recompute::automatic;  // there is nothing to keep
  return options;
}

RankLayer::RankLayer(Communicator& comm, const ExperimentSetup& setup, const Budget& budget,
                     std::int64_t max_tokens, std::shared_ptr<const ExpertFfn> experts)
    : budget_(budget),
      arena_(Device::cpu(), budget.bytes),
      layer_(comm, arena_, setup.shape, setup.placement,
             watched(layer_options(setup, budget, max_tokens), std::move(experts), setup.timelines)) {}

MoeOptions RankLayer::watched(MoeOptions options, std::shared_ptr<const ExpertFfn> experts, bool timelines) {
  options.experts = std::move(experts);
  options.on_step = [this](const StepStatistics& step) { note(step); };
  if (timelines) {
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

}  // namespace evenkeel::internal
