// Memory options of a step: what backward recomputes, how many chunks, and the machine that predicted times
// are for.
#pragma once

#include <cstdint>
#include <vector>

#include "evenkeel/cost/machine.h"

namespace evenkeel {

// What backward recomputes of a step's forward pass. `none`: nothing, unless a budget leaves no contiguous
// memory between what other steps keep; `whole`: everything at once, as frameworks do; `chunk`: everything,
// chunk by chunk; `automatic`: the part that memory cannot hold.
enum class Recompute { none, whole, chunk, automatic };

// How many chunks. `exact`: the fewest that fit in memory; `equal`: `count` equal parts of every rank's
// tokens; `mact`: equal parts, as many as MemFine's tuning chooses from `bins` (mact.h). Where an equal part
// does not fit, the step is cut as under `exact`: the budget takes precedence over the rule.
struct ChunkRule {
  enum class Kind { exact, equal, mact };
  Kind kind = Kind::exact;
  std::int64_t count = 1;
  std::vector<std::int64_t> bins = {1, 2, 4, 8};

  friend bool operator==(const ChunkRule&, const ChunkRule&) = default;
};

struct MemoryOptions {
  Recompute recompute = Recompute::automatic;
  ChunkRule rule;
  Machine cost;
  // Falls back to plain EP only where the planner's plan does not fit, even if plain EP is predicted to be
  // faster. For comparisons, and for callers who know better than the prediction.
  bool keep_plan = false;

  friend bool operator==(const MemoryOptions&, const MemoryOptions&) = default;
};

}  // namespace evenkeel
