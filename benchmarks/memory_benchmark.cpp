// Microseconds to plan a step for the free memory: to sum counts, make level's plan, and decide whether to
// spill, the chunks, and what to keep. Thread CPU time, warm. plan_benchmark measures the planner's own time.
//   build/release/bin/memory_benchmark --benchmark_repetitions=9 --benchmark_report_aggregates_only=true
#include <benchmark/benchmark.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "evenkeel/balance/planner.h"
#include "evenkeel/budget/block_table.h"
#include "evenkeel/budget/buffer_bytes.h"
#include "evenkeel/step/decide.h"

namespace evenkeel {
namespace {

constexpr std::int64_t kTokens = 2048;  // for each rank
constexpr int kTopK = 4;

// Hidden and intermediate size 768, bf16.
ChunkShape chunk_shape(int experts, int ranks) {
  ChunkShape shape;
  shape.num_ranks = ranks;
  shape.num_experts = experts;
  shape.top_k = kTopK;
  shape.hidden = 768;
  shape.element_bytes = 2;
  shape.saved_bytes = 2 * 768 * 2;
  shape.weight_bytes = 3 * 768 * 768 * 2;
  shape.forward_weight_bytes = shape.backward_weight_bytes = shape.weight_bytes;
  shape.recompute_weight_bytes = 2 * 768 * 768 * 2;
  shape.arrival_bytes = 2 * 768 * 768 * 2;
  shape.gradient_bytes = 3 * 768 * 768 * 4;
  shape.workspace = {32 << 10, 32 << 10, 32 << 10};
  shape.most_workspace = {2 << 20, 3 << 20, 3 << 20};
  return shape;
}

// `hot` thousandths of the assignments go to the first expert, the others to random experts.
std::vector<std::int32_t> choices(int experts, int hot, std::mt19937& random) {
  std::vector<std::int32_t> ids(kTokens * kTopK);
  for (auto& id : ids)
    id = static_cast<int>(random() % 1000) < hot
             ? 0
             : static_cast<std::int32_t>(random() % static_cast<unsigned>(experts));
  return ids;
}

// `free` is in thousandths of the bytes that plain EP would hold on its fullest rank, keeping all; 0 means
// unlimited.
void decide_forward(benchmark::State& state, int experts, int ranks, int blocks, int hot, int free) {
  std::mt19937 random(1);
  const LayerPlacement placement = LayerPlacement::contiguous(experts, ranks);
  std::vector<std::int32_t> numbers(static_cast<std::size_t>(BlockTable::count(ranks, experts, blocks)));
  const BlockTable table(numbers, ranks, experts, blocks);
  for (RankId rank : indices<RankId>(ranks))
    table.fill(rank, choices(experts, hot, random), kTopK, placement);

  const ChunkShape shape = chunk_shape(experts, ranks);
  Counts counts;
  table.sum(counts);
  StepPlan plan;
  make_planner({PlannerOptions::Kind::ep})->plan(counts, placement, plan);
  const std::vector<std::int64_t> tokens(static_cast<std::size_t>(ranks), kTokens);
  BlockLoads loads;
  loads.read(table, placement, tokens, kTopK);
  loads.follow(plan);
  const ChunkLoad whole = loads.load(RankId(0), 0, blocks);
  const std::int64_t plain = backward_bytes(shape, whole, whole.positions_here);
  const std::int64_t bytes = free == 0 ? 4 * plain : plain * free / 1000;
  const std::vector<RankMemory> memories(static_cast<std::size_t>(ranks), {kTokens, bytes, 0, bytes, bytes});

  const auto planner = make_planner({PlannerOptions::Kind::level, 1000, 64, 1000});
  BufferBytes model(shape, Recompute::automatic);
  DecisionOptions options;
  options.expert = step_expert(shape);
  options.units = kTokens;
  StepDecider decider(model, options, ranks);
  StepDecision decision;
  for (auto _ : state) {
    table.sum(counts);
    decider.decide({.pass = StepPass::forward,
                    .table = table,
                    .counts = counts,
                    .homes = placement,
                    .memories = memories,
                    .top_k = kTopK,
                    .planner = planner.get()},
                   decision);
    benchmark::DoNotOptimize(decision.chunks.size());
  }
  state.counters["chunks"] = static_cast<double>(decision.chunks.size());
  state.counters["transfers"] = static_cast<double>(decision.plan.transfers().size());
}

void register_all() {
  struct Case {
    int experts, ranks, blocks;
  };
  const Case cases[] = {{128, 8, 32},  {32, 8, 32}, {384, 8, 32}, {128, 2, 32},
                        {128, 32, 32}, {128, 8, 8}, {128, 8, 16}, {384, 64, 32}};
  const std::pair<const char*, int> shares[] = {{"ample", 0}, {"half", 500}, {"tenth", 100}};
  for (const auto& [experts, ranks, blocks] : cases)
    for (const auto& [loads, hot] : {std::pair{"even", 0}, {"hot30", 300}, {"hot95", 950}})
      for (const auto& [of_plain, thousandths] : shares) {
        const std::string name = std::string("experts:") + std::to_string(experts) +
                                 "/ranks:" + std::to_string(ranks) + "/blocks:" + std::to_string(blocks) +
                                 "/" + loads + "/" + of_plain;
        benchmark::RegisterBenchmark(name.c_str(), decide_forward, experts, ranks, blocks, hot, thousandths)
            ->Unit(benchmark::kMicrosecond)
            ->MinTime(0.02);
      }
}

// Runs before main() of benchmark_main.
[[maybe_unused]] const bool registered = (register_all(), true);

}  // namespace
}  // namespace evenkeel
