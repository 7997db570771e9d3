// Plain expert parallelism: every expert is computed at home.
//
// Problem     The plan without any balancing: other planners are compared with it and fall back on it.
// Method      One segment for each copy of an expert. The expert's assignments are divided evenly over its
//             copies; if a remainder is left, the first copies take one more.
// Cost        O(E P') for P' homes an expert; no allocation after the first call of a shape.
// Guarantee   No transfer. No bound on a rank's load.
// Options     None is read; base_load is ignored.
// Source      LLEP (arXiv 2601.17111), Algorithm 1; docs/algorithms.md#ep.
#pragma once

#include "evenkeel/balance/planner.h"

namespace evenkeel {

class Ep final : public Planner {
 public:
  std::string_view name() const override { return "ep"; }
  void plan(const Counts& counts, const LayerPlacement& placement, StepPlan& plan,
            std::span<const std::int64_t> base_load = {}) override;

  // plan() for planners that have decided not to spill. Does not check that counts and placement agree.
  static void keep_home(const Counts& counts, const LayerPlacement& placement, StepPlan& plan);
};

}  // namespace evenkeel
