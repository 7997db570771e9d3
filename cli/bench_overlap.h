// The measurement of `evenkeel bench --overlap`: how much of the waiting for peers two chunks in flight hide.
#pragma once

#include <string>
#include <vector>

#include "cli/bench_series.h"

namespace evenkeel::cli {

struct OverlapSetup {
  BenchSetup bench;
  PlannerOptions planner;
  std::int64_t chunks = 4;
  CostModel cost;
};

struct OverlapRow {
  std::string scenario;
  // The reference has one chunk in flight, the only way two. Everything is computed again in backward, chunk
  // by chunk.
  Figures figures;

  const CandidateFigures& one() const { return figures.reference; }
  const CandidateFigures& two() const { return figures.candidates.front(); }
  // Of the time by which waiting lengthens a step with one chunk in flight: the waiting of the rank that
  // waits least. That ranks end a pass at different times, since one has more to do or a slower core, hides
  // nowhere.
  double hidden() const;
};

std::vector<OverlapRow> measure_overlap(const OverlapSetup& setup, const std::vector<std::string>& scenarios,
                                        const NamedProgress& progress);

}  // namespace evenkeel::cli
