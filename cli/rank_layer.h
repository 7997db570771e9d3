// The layer of one rank in an arena of its own, noting down what its steps cost.
#pragma once

#include <optional>

#include "cli/experiment.h"
#include "cli/step_samples.h"
#include "evenkeel/layer/moe_layer.h"

namespace evenkeel::cli {

class RankLayer {
 public:
  // Collective. `experts` computes, or nothing for the library's own; `comm` must outlive this.
  RankLayer(Communicator& comm, const ExperimentSetup& setup, const Budget& budget, std::int64_t max_tokens,
            std::shared_ptr<const ExpertFfn> experts);

  Arena& arena() { return arena_; }
  MoeLayer& layer() { return layer_; }
  // Where the set-up asks for timelines, one begins anew; otherwise nothing happens.
  void restart_timeline();
  // Since then.
  StepRecord timeline() const { return timeline_->record(); }
  // Where coming steps are noted; null for none.
  void note_in(RankSample* sample) { sample_ = sample; }

 private:
  MoeOptions options(const ExperimentSetup& setup, const Budget& budget, std::int64_t max_tokens,
                     std::shared_ptr<const ExpertFfn> experts);
  void note(const StepStatistics& step);

  RankSample* sample_ = nullptr;
  Arena arena_;
  std::optional<StepTimeline> timeline_;
  MoeLayer layer_;
};

// Throws BudgetTooSmall, as the layers would, where a way's budget is below the least for up to so many
// tokens a rank; before anything large is made: the set-up needs no experts and no tokens yet.
void require_budgets(const ExperimentSetup& setup, std::int64_t max_tokens);

}  // namespace evenkeel::cli
