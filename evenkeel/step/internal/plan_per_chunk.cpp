#include "evenkeel/step/internal/plan_per_chunk.h"

#include <algorithm>

namespace evenkeel::internal {

PlanPerChunk::PlanPerChunk(const ByteModel& model, const DecisionOptions& options, int num_ranks)
    : model_(model), options_(options), foreign_(num_ranks) {}

PlannedChunks PlanPerChunk::plan(Planner& planner, const StepInputs& in, int begin, int end, bool kept) {
  const BlockTable& table = in.table;
  numbers_.resize(static_cast<std::size_t>(BlockTable::count(table.num_ranks(), table.num_experts(), 1)));
  const BlockTable run(numbers_, table.num_ranks(), table.num_experts(), 1);
  run.fill_run(table, begin, end);
  run.sum(counts_);
  tokens_.clear();
  for (const RankMemory& memory : in.memories)
    tokens_.push_back(memory.tokens * end / table.num_blocks() - memory.tokens * begin / table.num_blocks());
  loads_.read(run, in.homes, tokens_, in.top_k);

  planner.plan(counts_, in.homes, plan_);
  loads_.follow(plan_);
  foreign_.read(plan_, in.homes);
  PlannedChunks planned{.moves = plan_.spilled()};
  for (RankId rank : indices<RankId>(loads_.num_ranks())) {
    ForeignLoad foreign = foreign_.loads()[rank.offset()];
    foreign.gradients = 0;  // gradients are sent to their owners with each chunk
    planned.bytes =
        std::max(planned.bytes, model_.bytes(ChunkUse::recompute, loads_.load(rank, 0, 1), foreign));
  }
  const Chunk whole[] = {{0, 1, kept}};
  const auto seconds = [&](StepPass pass) {
    return StepSeconds(pass, options_.expert, options_.memory.cost, loads_, 1, foreign_.transfers())
        .of_all(whole);
  };
  planned.seconds = seconds(StepPass::forward);
  if (options_.with_backward) planned.seconds += seconds(StepPass::backward);
  return planned;
}

}  // namespace evenkeel::internal
