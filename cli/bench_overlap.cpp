#include "cli/bench_overlap.h"

#include <utility>

#include "cli/bench_layer.h"

namespace evenkeel::cli {

namespace {

Candidate candidate_of(const OverlapSetup& setup, int in_flight) {
  Candidate candidate{setup.planner, {}};
  MemoryOptions& memory = candidate.budget.memory;
  memory.recompute = Recompute::chunk;
  memory.rule = {ChunkRule::Kind::equal, setup.chunks, {}};
  memory.chunks_in_flight = in_flight;
  memory.cost = setup.cost;
  memory.keep_plan = true;
  return candidate;
}

}  // namespace

double OverlapRow::hidden() const {
  return one().least_wait_ms > 0 ? 1 - two().least_wait_ms / one().least_wait_ms : 0;
}

std::vector<OverlapRow> measure_overlap(const OverlapSetup& setup, const std::vector<std::string>& scenarios,
                                        const NamedProgress& progress) {
  const BenchSetup& bench = setup.bench;
  const auto ranks = static_cast<int>(bench.ranks);
  const BenchLayer layer(bench.layer, ranks, bench.tokens * ranks, bench.backward);
  const ExperimentSetup experiment =
      layer.experiment(bench.pairs, candidate_of(setup, 1), {candidate_of(setup, 2)});
  std::vector<OverlapRow> rows;
  for (const std::string& name : scenarios) {
    const Batch batch = scenario_batch(name, bench.layer, ranks, bench.tokens);
    rows.push_back({name, std::move(measure(experiment, {batch}, {}, progress(name)).front())});
  }
  return rows;
}

}  // namespace evenkeel::cli
