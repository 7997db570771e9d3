#include "evenkeel/layer/internal/step_schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>

#include "evenkeel/base/error.h"
#include "evenkeel/layer/internal/phase_clock.h"

namespace evenkeel::internal {

namespace {

// The smallest multiple of the number of blocks in which a unit is at most one token of a rank.
static_assert(std::has_single_bit(static_cast<unsigned>(kStepBlocks)), "fewer blocks are made by halving");
std::int64_t units_of(const BudgetShape& shape, bool cuts) {
  if (!cuts) return 1;
  return (shape.max_tokens + kStepBlocks - 1) / kStepBlocks * kStepBlocks;
}

void require_experts(const TopK& top_k, int num_experts) {
  for (std::size_t a = 0; a < top_k.experts.size(); ++a)
    if (const std::int32_t expert = top_k.experts[a]; expert < -1 || expert >= num_experts)
      throw InvalidArgument(
          "top_k", fmt::format("expert id {} at token {}", expert, a / static_cast<std::size_t>(top_k.k)),
          fmt::format("-1..{}", num_experts - 1));
}

}  // namespace

StepSchedule::StepSchedule(Communicator& comm, Arena& arena, const LayerPlacement& placement,
                           const BudgetShape& shape, const MemoryOptions& options, bool cuts)
    : comm_(comm),
      arena_(arena),
      placement_(placement),
      shape_(shape),
      cuts_(cuts),
      units_(units_of(shape, cuts)),
      memory_(shape.chunk, options, units_),
      memories_(static_cast<std::size_t>(comm.size())),
      counts_(comm.size(), placement.num_experts()) {
  chunks_.reserve(static_cast<std::size_t>(units_));
  for (Announced& chunk : announced_) chunk.counts.resize(comm.size(), placement.num_experts());
}

void StepSchedule::plan_forward(const TopK& top_k, Planner& planner, StepPlan& plan) {
  require_experts(top_k, placement_.num_experts());
  if (!cuts_) {
    gather_counts(top_k, counts_, "counts").wait();
    timed([&] {
      counts_.sum_loads();
      planner.plan(counts_, placement_, plan);
    });
    chunks_.assign(1, {0, 1, shape_.chunk.with_backward});
    return;
  }
  gather_memories(top_k, 0);
  if (num_blocks() == 0) return plan_for_any_routing(StepPass::forward, top_k, plan);
  with_table(top_k, [&](const BlockTable& table) {
    planner.plan(counts_, placement_, plan);
    memory_.choose_forward(table, counts_, memories_, placement_, plan);
  });
  take_chunks(plan);
}

bool StepSchedule::fits_everywhere(bool fits_here) {
  std::int64_t misfits[] = {fits_here ? 0 : 1};
  comm_.all_reduce(misfits, Reduction::sum, stream_, "memory for backward").wait();
  return misfits[0] == 0;
}

void StepSchedule::plan_backward(const TopK& rest, StepPlan& plan) {
  gather_memories(rest, 0);
  if (num_blocks() == 0) return plan_for_any_routing(StepPass::backward, rest, plan);
  with_table(rest, [&](const BlockTable& table) {
    memory_.choose_backward(table, counts_, memories_, placement_, plan);
  });
  take_chunks(plan);
}

bool StepSchedule::plan_rest(const TopK& rest, std::int64_t borrowed, const StepPlan& plan) {
  gather_memories(rest, borrowed);
  if (num_blocks() == 0) return false;
  bool fits = false;
  with_table(rest, [&](const BlockTable& table) {
    fits = memory_.cut_backward(table, memories_, placement_, plan);
  });
  if (fits) take_chunks(plan);
  return fits;
}

// Nothing is known of chunks but how many tokens they have.
void StepSchedule::plan_for_any_routing(StepPass pass, const TopK& top_k, StepPlan& plan) {
  gather_counts(top_k, counts_, "counts").wait();
  timed([&] {
    counts_.sum_loads();
    memory_.choose_for_any_routing(pass, counts_, memories_, placement_, plan);
  });
  take_chunks(plan);
}

void StepSchedule::take_chunks(const StepPlan& plan) {
  chunks_.assign(memory_.chunks().begin(), memory_.chunks().end());
  announcements_ = taken_ = 0;
  shares_.begin(plan);
  const auto loads = plan.rank_loads();
  covered_ = std::accumulate(loads.begin(), loads.end(), std::int64_t{0}) == counts_.total();
}

std::int64_t StepSchedule::most_held() const {
  return shape_.recompute == Recompute::none ? std::numeric_limits<std::int64_t>::max()
                                             : arena_.spare_state_bytes();
}

void StepSchedule::gather_memories(const TopK& top_k, std::int64_t borrowed) {
  RankMemory& mine = memories_[comm_.rank().offset()];
  mine.tokens = top_k.tokens;
  mine.gap = arena_.largest_gap_bytes() + borrowed;
  mine.least = arena_.claimed_step_bytes();
  mine.table = arena_.largest_gap_bytes();
  mine.held = most_held();
  comm_
      .all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(memories_)), stream_,
                  "memory")
      .wait();
}

// As many as every rank has memory to count; 0 where there is none for one.
int StepSchedule::num_blocks() const {
  const std::int64_t memory = std::ranges::min(memories_, {}, &RankMemory::table).table;
  int blocks = kStepBlocks;
  while (blocks > 0 && block_table_bytes(shape_.chunk, blocks) > memory) blocks /= 2;
  return blocks;
}

template <class Use>
void StepSchedule::with_table(const TopK& top_k, const Use& use) {
  const int experts = placement_.num_experts();
  const int blocks = num_blocks();
  const Buffer numbers =
      arena_.allocate_for<std::int32_t>(BlockTable::count(comm_.size(), experts, blocks), "table of blocks");
  const BlockTable table(numbers.as<std::int32_t>(), comm_.size(), experts, blocks);
  table.fill(comm_.rank(), top_k.experts, top_k.k, placement_);
  comm_.all_gather(std::as_bytes(table.part(comm_.rank())), numbers.bytes(), stream_, "counts").wait();
  timed([&] {
    table.sum(counts_);
    use(table);
  });
}

template <class Work>
void StepSchedule::timed(const Work& work) {
  const double before = thread_cpu_seconds();
  work();
  planning_seconds_ = thread_cpu_seconds() - before;
}

Event StepSchedule::gather_counts(const TopK& top_k, Counts& counts, const char* name) {
  counts.resize(comm_.size(), placement_.num_experts());
  const auto experts = static_cast<std::size_t>(placement_.num_experts());
  const auto mine = counts.rows().subspan(comm_.rank().offset() * experts, experts);
  for (const std::int32_t expert : top_k.experts)
    if (expert >= 0) ++mine[static_cast<std::size_t>(expert)];
  return comm_.all_gather(std::as_bytes(mine), std::as_writable_bytes(counts.rows()), stream_, name);
}

// Of a step that is one chunk, the counts are at hand.
void StepSchedule::announce(const TopK& part) {
  if (chunks_.size() == 1) return;
  Announced& chunk = announced_[announcements_++ % 2];
  chunk.here = gather_counts(part, chunk.counts, "counts of a chunk");
}

const StepPlan& StepSchedule::next_chunk(const StepPlan& step) {
  if (chunks_.size() > 1) {
    Announced& chunk = announced_[taken_++ % 2];
    chunk.here.wait();
    chunk.counts.sum_loads();
  } else if (covered_) {
    return step;
  }
  shares_.next(counts(), placement_, chunk_plan_);
  return chunk_plan_;
}

}  // namespace evenkeel::internal
