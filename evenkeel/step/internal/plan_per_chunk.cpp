#include "evenkeel/step/internal/plan_per_chunk.h"

#include <algorithm>

namespace evenkeel::internal {

PlanPerChunk::PlanPerChunk(const ByteModel& model, const DecisionOptions& options, int num_ranks)
    : model_(model),
      options_(options),
      plain_planner_(make_planner({PlannerOptions::Kind::ep})),
      foreign_(num_ranks) {}

PlanPerChunk::Run PlanPerChunk::plan(const StepInputs& in, int begin, int end, bool kept) {
  take_run(in, begin, end);
  in.planner->plan(counts_, in.homes, plan_);
  return judge(in, plan_, kept);
}

PlanPerChunk::Run PlanPerChunk::stay(const StepInputs& in, int begin, int end) {
  take_run(in, begin, end);
  plain_planner_->plan(counts_, in.homes, plan_);
  return judge(in, plan_, false);
}

void PlanPerChunk::take_run(const StepInputs& in, int begin, int end) {
  const BlockTable& table = in.table;
  numbers_.resize(static_cast<std::size_t>(BlockTable::count(table.num_ranks(), table.num_experts(), 1)));
  const BlockTable run(numbers_, table.num_ranks(), table.num_experts(), 1);
  run.fill_run(table, begin, end);
  run.sum(counts_);
  tokens_.clear();
  for (const RankMemory& memory : in.memories)
    tokens_.push_back(memory.tokens * end / table.num_blocks() - memory.tokens * begin / table.num_blocks());
  loads_.read(run, in.homes, tokens_, in.top_k);
}

PlanPerChunk::Run PlanPerChunk::judge(const StepInputs& in, const StepPlan& plan, bool kept) {
  loads_.follow(plan);
  foreign_.read(plan, in.homes);
  Run run{.moves = plan.spilled()};
  for (RankId rank : indices<RankId>(loads_.num_ranks())) {
    ForeignLoad foreign = foreign_.loads()[rank.offset()];
    foreign.gradients = 0;  // they go home with the chunk
    run.bytes = std::max(run.bytes, model_.bytes(ChunkUse::recompute, loads_.load(rank, 0, 1), foreign));
  }
  const Chunk whole[] = {{0, 1, kept}};
  const auto seconds = [&](StepPass pass) {
    return StepSeconds(pass, options_.expert, options_.memory.cost, loads_, 1, foreign_.transfers())
        .of_all(whole);
  };
  run.seconds = seconds(StepPass::forward);
  if (options_.with_backward) run.seconds += seconds(StepPass::backward);
  return run;
}

}  // namespace evenkeel::internal
