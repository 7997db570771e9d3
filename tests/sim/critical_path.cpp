#include "tests/sim/critical_path.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace evenkeel::published {

namespace {

Phase phase_of(SimPhase phase) {
  switch (phase) {
    case SimPhase::plan:
      return Phase::plan;
    case SimPhase::weights:
    case SimPhase::gradients:
      return Phase::transfer;
    case SimPhase::dispatch:
      return Phase::dispatch;
    case SimPhase::combine:
      return Phase::combine;
    default:
      return Phase::compute;
  }
}

}  // namespace

PhaseSeconds critical_path(std::span<const PhaseSpan> spans, int num_ranks) {
  std::vector<std::array<PhaseSeconds, 2>> ranks(static_cast<std::size_t>(num_ranks));
  for (const PhaseSpan& span : spans)
    if (span.phase != SimPhase::wait)
      ranks[static_cast<std::size_t>(span.rank)][span.backward ? 1 : 0]
           [static_cast<std::size_t>(phase_of(span.phase))] += span.end - span.begin;
  PhaseSeconds path{};
  for (std::size_t pass = 0; pass < 2; ++pass)
    for (std::size_t phase = 0; phase < kPhases; ++phase) {
      double slowest = 0;
      for (const auto& rank : ranks) slowest = std::max(slowest, rank[pass][phase]);
      path[phase] += slowest;
    }
  return path;
}

double sum(const PhaseSeconds& phases) {
  return std::reduce(phases.begin(), phases.end());
}

}  // namespace evenkeel::published
