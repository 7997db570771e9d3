#include "evenkeel/sim/peaks.h"

#include <algorithm>
#include <limits>

namespace evenkeel {

namespace {

// One rank's bytes during a step.
class RankPeaks {
 public:
  RankPeaks(const LayerMemory& memory, const CarriedStep& step, RankId rank)
      : memory_(memory), step_(step), rank_(rank), shape_(memory.shape.chunk) {
    shape_.workspace = step.workspace;
    borrowed_ = std::ranges::count(step.plan.transfers(), rank, &Transfer::to);
    lends_ = std::ranges::count(step.plan.transfers(), rank, &Transfer::from) > 0;
  }

  Peaks peaks() const { return {forward(), memory_.with_backward() ? backward() : 0}; }

 private:
  // The tokens' choices wait for backward. Under a budget they have their place in any case.
  std::int64_t choices() const {
    if (!memory_.with_backward()) return 0;
    if (memory_.budget) return state_bytes(shape_, memory_.shape.max_tokens);
    std::int64_t tokens = 0;
    for (const RankLoads& loads : step_.loads) tokens += loads[rank_.offset()].tokens;
    return state_bytes(shape_, tokens);
  }
  std::int64_t table() const {
    return memory_.cuts() ? block_table_bytes(shape_, memory_.num_blocks(memory_.free_bytes())) : 0;
  }
  const ChunkLoad& load(std::size_t chunk) const { return step_.loads[chunk][rank_.offset()]; }
  std::int64_t saved(std::size_t chunk) const {
    return step_.chunks[chunk].kept ? load(chunk).positions_here : 0;
  }
  std::int64_t held(std::size_t chunk) const { return held_bytes(shape_, load(chunk), saved(chunk)); }

  std::int64_t forward() const {
    std::int64_t held_now = choices() + borrowed_ * shape_.forward_weight_bytes;
    std::int64_t most = std::max((memory_.budget ? choices() : 0) + table(),
                                 held_now + (borrowed_ > 0 ? shape_.landing_bytes : 0));
    for (std::size_t c = 0; c < step_.chunks.size(); ++c) {
      most = std::max(most, held_now + forward_bytes(shape_, load(c), saved(c)));
      if (step_.chunks[c].kept) held_now += held(c);
    }
    return most;
  }

  // Kept chunks go from the last to the first, then what is computed again.
  std::int64_t backward() const {
    const auto kept =
        static_cast<std::size_t>(std::ranges::find(step_.chunks, false, &Chunk::kept) - step_.chunks.begin());
    const bool again = !step_.rest_loads.empty();
    const std::int64_t gradients = borrowed_ * shape_.gradient_bytes;
    const std::int64_t away = weights(again) + gradients;
    std::int64_t held_now = choices();
    for (std::size_t c = 0; c < kept; ++c) held_now += held(c);
    std::int64_t most = held_now;
    for (std::size_t c = kept; c-- > 0;) {
      held_now -= held(c);
      if (saved(c) > 0) most = std::max(most, held_now + away + backward_bytes(shape_, load(c), saved(c)));
    }
    if (again) most = std::max(most, held_now + (kept > 0 ? away : 0) + table());
    for (const RankLoads& loads : step_.rest_loads)
      most = std::max(most, held_now + away + again_bytes(loads[rank_.offset()]));
    if (lends_) most = std::max(most, held_now + gradients + shape_.gradient_bytes);
    return most;
  }

  bool whole() const { return memory_.options.recompute == Recompute::whole; }
  // Of what is borrowed in backward.
  std::int64_t weights(bool again) const {
    const std::int64_t besides = whole() ? shape_.forward_weight_bytes : shape_.recompute_weight_bytes;
    return borrowed_ * (shape_.backward_weight_bytes + (again ? besides : 0));
  }
  std::int64_t again_bytes(const ChunkLoad& load) const {
    if (!whole()) return recompute_bytes(shape_, load);
    return std::max(backward_bytes(shape_, load, load.positions_here),
                    forward_bytes(shape_, load, load.positions_here));
  }

  const LayerMemory& memory_;
  const CarriedStep& step_;
  RankId rank_;
  ChunkShape shape_;
  std::int64_t borrowed_ = 0;
  bool lends_ = false;
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
  return *budget -
         (with_backward() ? state_bytes(shape.chunk, shape.max_tokens) * shape.states_in_flight : 0);
}

RankMemory LayerMemory::report(std::int64_t tokens, std::int64_t borrowed) const {
  RankMemory memory;
  memory.tokens = tokens;
  memory.gap = free_bytes();
  memory.least = budget ? least_step_bytes(shape) : 0;
  memory.table = memory.gap - borrowed;
  memory.held = shape.recompute == Recompute::none
                    ? std::numeric_limits<std::int64_t>::max()
                    : (budget.value_or(memory.gap) - memory.least - least_state_bytes(shape)) /
                          std::max(shape.states_in_flight, 1);
  return memory;
}

int LayerMemory::num_blocks(std::int64_t table_bytes) const {
  int blocks = kStepBlocks;
  while (blocks > 1 && block_table_bytes(shape.chunk, blocks) > table_bytes) blocks /= 2;
  return blocks;
}

std::vector<Peaks> peaks_of(const LayerMemory& memory, const CarriedStep& step) {
  std::vector<Peaks> all;
  for (RankId rank : indices<RankId>(step.plan.num_ranks()))
    all.push_back(RankPeaks(memory, step, rank).peaks());
  return all;
}

}  // namespace evenkeel
