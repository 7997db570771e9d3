#include "evenkeel/layer/cpu/internal/step_schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>

#include "evenkeel/base/bytes.h"
#include "evenkeel/base/clock.h"
#include "evenkeel/base/error.h"

namespace evenkeel::internal {

namespace {

void require_experts(const TopK& top_k, int num_experts) {
  for (std::size_t a = 0; a < top_k.experts.size(); ++a)
    if (const std::int32_t expert = top_k.experts[a]; expert < -1 || expert >= num_experts)
      throw InvalidArgument(
          "top_k", fmt::format("expert id {} at token {}", expert, a / static_cast<std::size_t>(top_k.k)),
          fmt::format("-1..{}", num_experts - 1));
}

}  // namespace

// A step is cut in units of at most one token per rank: units_ is the smallest multiple of kStepBlocks that
// ensures this.
StepSchedule::StepSchedule(Communicator& comm, Arena& arena, const LayerPlacement& placement,
                           const BudgetShape& shape, const MemoryOptions& options, bool cuts)
    : comm_(comm),
      arena_(arena),
      placement_(placement),
      shape_(shape),
      cuts_(cuts),
      units_(cuts ? round_up(shape.max_tokens, kStepBlocks) : 1),
      bytes_(shape.chunk, options.recompute),
      decider_(bytes_, {options, step_expert(shape.chunk), units_, shape.chunk.with_backward}, comm.size()),
      memories_(static_cast<std::size_t>(comm.size())),
      counts_(comm.size(), placement.num_experts()) {
  if (cuts_)
    one_block_.resize(static_cast<std::size_t>(BlockTable::count(comm.size(), placement.num_experts(), 1)));
}

void StepSchedule::decide_forward(const TopK& top_k, Planner& planner, StepDecision& decision) {
  require_experts(top_k, placement_.num_experts());
  decision.chunks.reserve(static_cast<std::size_t>(units_));
  if (cuts_) return decide(top_k, &planner, std::nullopt, decision);
  gather_counts(top_k, "counts");
  timed([&] { planner.plan(counts_, placement_, decision.plan); });
  decision.reason = reason_of_plan(decision.plan.spilled());
  decision.chunks.assign(1, {0, 1, shape_.chunk.with_backward});
  decision.workspace = bytes_.workspaces();
  follow(decision.plan);
}

bool StepSchedule::fits_everywhere(bool fits_here) {
  std::int64_t misfits[] = {fits_here ? 0 : 1};
  comm_.all_reduce(misfits, Reduction::sum, stream_, "memory for backward").wait();
  return misfits[0] == 0;
}

bool StepSchedule::decide_backward(const TopK& rest, std::optional<std::int64_t> borrowed,
                                   StepDecision& decision) {
  decide(rest, nullptr, borrowed, decision);
  return !decision.chunks.empty();
}

void StepSchedule::follow(const StepPlan& plan) {
  shares_.begin(plan);
  const auto loads = plan.rank_loads();
  covered_ = std::accumulate(loads.begin(), loads.end(), std::int64_t{0}) == counts_.total();
}

void StepSchedule::gather_memories(std::int64_t tokens, std::int64_t borrowed) {
  RankMemory& mine = memories_[comm_.rank().offset()];
  mine.tokens = tokens;
  mine.free_bytes = arena_.largest_gap_bytes() + borrowed;
  mine.reserved_bytes = arena_.claimed_step_bytes();
  mine.table_bytes = arena_.largest_gap_bytes();
  mine.keep_limit_bytes = shape_.recompute == Recompute::none ? std::numeric_limits<std::int64_t>::max()
                                                              : arena_.spare_state_bytes();
  comm_
      .all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(memories_)), stream_,
                  "memory")
      .wait();
}

// The most blocks for which every rank has memory for the block table.
int StepSchedule::num_blocks() const {
  static_assert(std::has_single_bit(static_cast<unsigned>(kStepBlocks)), "fewer blocks are made by halving");
  const std::int64_t memory = std::ranges::min(memories_, {}, &RankMemory::table_bytes).table_bytes;
  int blocks = kStepBlocks;
  while (blocks > 1 && block_table_bytes(shape_.chunk, blocks) > memory) blocks /= 2;
  return blocks;
}

void StepSchedule::decide(const TopK& top_k, Planner* forward, std::optional<std::int64_t> borrowed,
                          StepDecision& decision) {
  gather_memories(top_k.tokens, borrowed.value_or(0));
  const int experts = placement_.num_experts();
  const int blocks = num_blocks();
  const std::int64_t count = BlockTable::count(comm_.size(), experts, blocks);
  const Buffer lent = arena_.allocate_for<std::int32_t>(blocks > 1 ? count : 0, "table of blocks");
  const std::span<std::int32_t> numbers = blocks > 1 ? lent.as<std::int32_t>() : std::span(one_block_);
  const BlockTable table(numbers, comm_.size(), experts, blocks);
  table.fill(comm_.rank(), top_k.experts, top_k.k, placement_);
  comm_
      .all_gather(std::as_bytes(table.part(comm_.rank())), std::as_writable_bytes(numbers), stream_, "counts")
      .wait();
  timed([&] {
    table.sum(counts_);
    const StepPass pass = forward == nullptr ? StepPass::backward : StepPass::forward;
    decider_.decide({pass, table, counts_, placement_, memories_, top_k.k, forward, borrowed.has_value()},
                    decision);
  });
  if (!decision.chunks.empty()) follow(decision.plan);
}

template <class Work>
void StepSchedule::timed(const Work& work) {
  const double before = thread_cpu_seconds();
  work();
  planning_seconds_ = thread_cpu_seconds() - before;
}

void StepSchedule::gather_counts(const TopK& top_k, const char* name) {
  const auto experts = static_cast<std::size_t>(placement_.num_experts());
  const auto mine = counts_.rows().subspan(comm_.rank().offset() * experts, experts);
  std::ranges::fill(mine, 0);
  for (const std::int32_t expert : top_k.experts)
    if (expert >= 0) ++mine[static_cast<std::size_t>(expert)];
  comm_.all_gather(std::as_bytes(mine), std::as_writable_bytes(counts_.rows()), stream_, name).wait();
  counts_.sum_loads();
}

// Counts are gathered again only if the step has several chunks.
const StepPlan& StepSchedule::plan_chunk(const TopK& part, const StepDecision& step) {
  if (step.chunks.size() > 1)
    gather_counts(part, "counts of a chunk");
  else if (covered_)
    return step.plan;
  shares_.next(counts_, placement_, chunk_plan_);
  return chunk_plan_;
}

}  // namespace evenkeel::internal
