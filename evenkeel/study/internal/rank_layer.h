// The layer of one rank in an arena of its own, noting down what its steps cost.
#pragma once

#include <memory>
#include <optional>

#include "evenkeel/layer/moe_layer.h"
#include "evenkeel/study/internal/step_samples.h"

namespace evenkeel::internal {

// Of every layer in an experiment, whoever computes.
MoeOptions layer_options(const ExperimentSetup& setup, const Budget& budget, std::int64_t max_tokens);

class RankLayer {
 public:
  // Collective. `experts` computes, or nothing for the library's own; `comm` must outlive this.
  RankLayer(Communicator& comm, const ExperimentSetup& setup, const Budget& budget, std::int64_t max_tokens,
            std::shared_ptr<const ExpertFfn> experts);

  const Budget& budget() const { return budget_; }
  Arena& arena() { return arena_; }
  MoeLayer& layer() { return layer_; }
  // Where the set-up asks for timelines, one begins anew; otherwise nothing happens.
  void restart_timeline();
  // Since then.
  StepRecord timeline() const { return timeline_->record(); }
  // Where coming steps are noted; null for none.
  void note_in(RankSample* sample) { sample_ = sample; }

 private:
  MoeOptions watched(MoeOptions options, std::shared_ptr<const ExpertFfn> experts, bool timelines);
  void note(const StepStatistics& step);

  Budget budget_;
  RankSample* sample_ = nullptr;
  Arena arena_;
  std::optional<StepTimeline> timeline_;
  MoeLayer layer_;
};

}  // namespace evenkeel::internal
