#include "evenkeel/sim/peaks.h"

#include <algorithm>
#include <limits>

#include "evenkeel/plan/away.h"

namespace evenkeel {

namespace {

// What a rank has to do with other ranks' experts under a plan.
struct Foreign {
  std::int64_t borrowed = 0;   // number of experts whose weights it borrows
  std::int64_t gradients = 0;  // number of experts whose gradients it sends to their owners
  bool awaits = false;         // true if it receives gradients for its own experts
};

std::vector<Foreign> foreign_of(const StepPlan& plan, const LayerPlacement& homes) {
  std::vector<Foreign> all(static_cast<std::size_t>(plan.num_ranks()));
  for (const Transfer& transfer : plan.transfers()) ++all[transfer.to.offset()].borrowed;
  for_each_away(plan, homes, [&](ExpertId, RankId owner, RankId rank) {
    ++all[rank.offset()].gradients;
    all[owner.offset()].awaits = true;
  });
  return all;
}

// The bytes that one rank holds during a step.
class RankPeaks {
 public:
  RankPeaks(const LayerMemory& memory, const CarriedStep& step, const Foreign& in_plan,
            const Foreign& in_recompute, RankId rank)
      : memory_(memory),
        step_(step),
        rank_(rank),
        shape_(memory.shape.chunk),
        in_plan_(in_plan),
        in_recompute_(in_recompute) {
    shape_.workspace = step.workspace;
  }

  // Appends the bytes at each point of the step. The points of backward start at `backward_begin`.
  Peaks add_points(std::vector<std::int64_t>& points, std::size_t& backward_begin) {
    const std::size_t begin = points.size();
    points_ = &points;
    forward();
    backward_begin = points.size();
    if (memory_.with_backward()) backward();
    const auto most = [&](std::size_t from, std::size_t to) {
      std::int64_t bytes = 0;
      for (std::size_t i = from; i < to; ++i) bytes = std::max(bytes, points[i]);
      return bytes;
    };
    return {most(begin, backward_begin), most(backward_begin, points.size())};
  }

 private:
  void add_point(std::int64_t bytes) { points_->push_back(bytes); }

  // Bytes of the tokens' choices, which are kept for backward. If there is a budget, their space is always
  // reserved.
  std::int64_t choices() const {
    if (!memory_.with_backward()) return 0;
    if (memory_.budget) return state_bytes(shape_, memory_.shape.max_tokens);
    std::int64_t tokens = 0;
    for (const RankLoads& loads : step_.loads) tokens += loads[rank_.offset()].tokens;
    return state_bytes(shape_, tokens);
  }
  // A table of only one block is in the layer's own memory, not in the arena.
  std::int64_t table(int blocks) const {
    return memory_.cuts() && blocks > 1 ? block_table_bytes(shape_, blocks) : 0;
  }
  const ChunkLoad& load(std::size_t chunk) const { return step_.loads[chunk][rank_.offset()]; }
  std::int64_t saved(std::size_t chunk) const {
    return step_.chunks[chunk].kept ? load(chunk).positions_here : 0;
  }
  std::int64_t held(std::size_t chunk) const { return held_bytes(shape_, load(chunk), saved(chunk)); }

  void forward() {
    std::int64_t held_now = choices() + in_plan_.borrowed * shape_.forward_weight_bytes;
    add_point((memory_.budget ? choices() : 0) + table(step_.blocks));
    add_point(held_now + (in_plan_.borrowed > 0 ? shape_.arrival_bytes : 0));
    for (std::size_t c = 0; c < step_.chunks.size(); ++c) {
      add_point(held_now + forward_bytes(shape_, load(c), saved(c)));
      if (step_.chunks[c].kept) held_now += held(c);
      add_point(held_now);
    }
  }

  // Backward handles the kept chunks from last to first, then the recomputed part. Gradients for this rank's
  // own experts arrive one at a time.
  void backward() {
    const auto kept =
        static_cast<std::size_t>(std::ranges::find(step_.chunks, false, &Chunk::kept) - step_.chunks.begin());
    const bool recomputes = !step_.recompute_loads.empty();
    const std::int64_t away = away_bytes(in_plan_, recomputes),
                       recompute_away = away_bytes(in_recompute_, recomputes);
    std::int64_t held_now = choices();
    for (std::size_t c = 0; c < kept; ++c) held_now += held(c);
    add_point(held_now);
    for (std::size_t c = kept; c-- > 0;) {
      held_now -= held(c);
      if (saved(c) > 0) add_point(held_now + away + backward_bytes(shape_, load(c), saved(c)));
    }
    for (std::size_t i = 0; i < step_.recompute_blocks.size() && recomputes; ++i)
      add_point(held_now + (kept > 0 && i == 0 ? away : 0) + table(step_.recompute_blocks[i]));
    for (const RankLoads& loads : step_.recompute_loads)
      add_point(held_now + recompute_away + chunk_recompute_bytes(loads[rank_.offset()]));
    for (const Foreign& part : {kept > 0 ? in_plan_ : in_recompute_, in_recompute_})
      if (part.awaits) add_point(held_now + (part.gradients + 1) * shape_.gradient_bytes);
    add_point(held_now);
  }

  bool whole() const { return memory_.options.recompute == Recompute::whole; }
  // Bytes of the weights and gradients of borrowed experts in backward.
  std::int64_t away_bytes(const Foreign& part, bool recomputes) const {
    const std::int64_t besides = whole() ? shape_.forward_weight_bytes : shape_.recompute_weight_bytes;
    return part.borrowed * (shape_.backward_weight_bytes + (recomputes ? besides : 0)) +
           part.gradients * shape_.gradient_bytes;
  }
  // A rank that has no rows in the chunk needs no workspace in backward.
  std::int64_t chunk_recompute_bytes(const ChunkLoad& load) const {
    ChunkShape shape = shape_;
    if (load.positions_here == 0) shape.workspace.backward = shape.workspace.recompute = 0;
    if (!whole()) return recompute_bytes(shape, load);
    return std::max(backward_bytes(shape, load, load.positions_here),
                    forward_bytes(shape, load, load.positions_here));
  }

  const LayerMemory& memory_;
  const CarriedStep& step_;
  RankId rank_;
  ChunkShape shape_;
  const Foreign& in_plan_;
  const Foreign& in_recompute_;
  std::vector<std::int64_t>* points_ = nullptr;
};

}  // namespace

bool LayerMemory::cuts() const {
  return budget.has_value() || options.recompute == Recompute::whole ||
         options.recompute == Recompute::chunk || options.rule.kind != ChunkRule::Kind::exact;
}

std::int64_t LayerMemory::units() const {
  return cuts() ? round_up(shape.max_tokens, kStepBlocks) : 1;
}

std::int64_t LayerMemory::free_bytes() const {
  if (!budget) return std::numeric_limits<std::int64_t>::max() / 4;
  return *budget / kCacheLine * kCacheLine -
         (with_backward() ? state_bytes(shape.chunk, shape.max_tokens) * shape.states_in_flight : 0);
}

RankMemory LayerMemory::report(std::int64_t tokens, std::int64_t borrowed) const {
  RankMemory memory;
  memory.tokens = tokens;
  memory.free_bytes = free_bytes();
  memory.reserved_bytes = budget ? least_step_bytes(shape) : 0;
  memory.table_bytes = memory.free_bytes - borrowed;
  memory.keep_limit_bytes =
      shape.recompute == Recompute::none
          ? std::numeric_limits<std::int64_t>::max()
          : (budget.value_or(memory.free_bytes) - memory.reserved_bytes - least_state_bytes(shape)) /
                std::max(shape.states_in_flight, 1);
  return memory;
}

int LayerMemory::num_blocks(std::int64_t table_bytes) const {
  int blocks = kStepBlocks;
  while (blocks > 1 && block_table_bytes(shape.chunk, blocks) > table_bytes) blocks /= 2;
  return blocks;
}

std::vector<Peaks> peaks_of(const LayerMemory& memory, const CarriedStep& step, StepBytes* fullest) {
  const std::vector<Foreign> in_plan = foreign_of(step.plan, step.homes),
                             in_recompute = foreign_of(step.recompute_plan, step.homes);
  std::vector<Peaks> all;
  std::vector<std::int64_t> points;
  std::int64_t most = -1;
  for (RankId rank : indices<RankId>(step.plan.num_ranks())) {
    points.clear();
    std::size_t backward = 0;
    all.push_back(RankPeaks(memory, step, in_plan[rank.offset()], in_recompute[rank.offset()], rank)
                      .add_points(points, backward));
    if (fullest == nullptr || all.back().both() <= most) continue;
    most = all.back().both();
    *fullest = {rank.value(), points, backward};
  }
  return all;
}

}  // namespace evenkeel
