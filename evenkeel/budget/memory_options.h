// A caller's options for the memory of a step: what backward computes again, how many chunks, and the costs
// by which ways to carry it out are compared.
#pragma once

#include <cstdint>
#include <vector>

#include "evenkeel/cost/machine.h"

namespace evenkeel {

// The part of a step's forward pass that is computed again in backward. `none`: nothing, unless a budget has
// no memory in one piece between what other steps keep; `whole`: all of it, at once, as frameworks do;
// `chunk`: all, chunk by chunk; `automatic`: the part that there is no memory for.
enum class Recompute { none, whole, chunk, automatic };

// How many chunks. `exact`: the fewest that fit in the memory that a step leaves them; `equal`: `count` of
// equal parts of every rank's tokens; `mact`: equal parts too, as many as MemFine's tuning takes of `bins`
// (mact.h). Where an equal part would not fit, the step is cut as under `exact`: a rule is a wish, the budget
// is a promise.
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
  // Plain EP only where the planner's plan does not fit, however much faster it is predicted to be: for
  // comparison, and for those who know better than the prediction.
  bool keep_plan = false;

  friend bool operator==(const MemoryOptions&, const MemoryOptions&) = default;
};

}  // namespace evenkeel
