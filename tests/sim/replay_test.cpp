// A replayed step gives exactly the figures that `run` reports for the same step of a real layer.
#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "evenkeel/compute/cpu/expert_ffn.h"
#include "evenkeel/layer/chunk_shape.h"
#include "evenkeel/sim/layer_replay.h"
#include "evenkeel/study/experiment.h"
#include "tests/plan/random_nodes.h"

namespace evenkeel {
namespace {

struct Case {
  MoeShape moe;
  Batch batch;
  LayerPlacement homes;
  bool backward = false;
};

int draw(std::mt19937_64& random, int least, int most) {
  return least + static_cast<int>(random() % static_cast<unsigned>(most - least + 1));
}

// Contiguous homes, or random homes with some copies.
LayerPlacement random_homes(int experts, int ranks, std::mt19937_64& random) {
  if (draw(random, 0, 1) == 0) return LayerPlacement::contiguous(experts, ranks);
  std::vector<std::vector<int>> homes;
  for (int expert = 0; expert < experts; ++expert) {
    homes.push_back({draw(random, 0, ranks - 1)});
    if (const int copy = draw(random, 0, 3 * ranks); copy < ranks && copy != homes.back().front())
      homes.back().push_back(copy);
  }
  return LayerPlacement(homes, ranks);
}

// A case whose ranks have different numbers of tokens; some ids are -1.
Case random_case(std::mt19937_64& random) {
  const int ranks = draw(random, 1, 5), experts = std::max(2, ranks * draw(random, 1, 4));
  const int top_k = draw(random, 1, std::min(experts, 4));
  constexpr Activation kActivations[] = {Activation::swiglu, Activation::clamped_swiglu, Activation::gelu};
  const ExpertShape expert{16 * draw(random, 1, 4), 8 * draw(random, 1, 8), kActivations[draw(random, 0, 2)],
                           draw(random, 0, 1) == 1, draw(random, 0, 1) == 0 ? DataType::f32 : DataType::bf16};
  Case made{{experts, top_k, expert},
            batch_of_workload(draw(random, 0, 1) == 0 ? "zipf:1.2" : "concentrated:0.9:1",
                              {ranks, draw(random, 40, 300), experts, top_k}, random()),
            random_homes(experts, ranks, random),
            draw(random, 0, 2) > 0};
  for (std::int32_t& id : made.batch.experts)
    if (draw(random, 0, 19) == 0) id = -1;
  for (std::size_t rank = 1; rank < static_cast<std::size_t>(ranks); ++rank)
    made.batch.first_token[rank] -= draw(random, 0, 20);
  return made;
}

LayerTokens tokens_of(const Case& made) {
  LayerTokens tokens;
  tokens.top_k = made.batch.top_k;
  tokens.first_token = made.batch.first_token;
  tokens.experts = made.batch.experts;
  tokens.counts.resize(made.batch.num_ranks(), made.moe.num_experts);
  for (RankId rank : indices<RankId>(made.batch.num_ranks()))
    for (const std::int32_t id : made.batch.top_k_of(rank).experts)
      if (id >= 0)
        ++tokens.counts.rows()[rank.offset() * static_cast<std::size_t>(made.moe.num_experts) +
                               static_cast<std::size_t>(id)];
  tokens.counts.sum_loads();
  return tokens;
}

Method method_of(const Candidate& candidate) {
  Method method;
  using Kind = PlannerOptions::Kind;
  method.step = candidate.planner.kind == Kind::ep             ? Method::Step::ep
                : candidate.planner.kind == Kind::least_loaded ? Method::Step::llep
                                                               : Method::Step::level;
  if (candidate.budget.is_given()) method.memory = Method::Memory::budget;
  return method;
}

SimSetup setup_of(const Case& made, const Candidate& candidate, const ExpertFfn& experts,
                  const std::vector<int>& nodes) {
  SimSetup setup{.topology = Topology({.node_of_rank = nodes}), .backward = made.backward};
  SimLayer layer;
  layer.chunk = chunk_shape(made.moe, made.batch.num_ranks(), experts, made.backward);
  const ExpertShape& expert = made.moe.expert;
  layer.sizes = {step_expert(layer.chunk), static_cast<double>(layer.chunk.row_bytes()),
                 static_cast<double>(expert.weight_bytes())};
  setup.layer = layer;
  if (candidate.budget.is_given()) setup.budget = candidate.budget.bytes;
  setup.most_tokens = made.batch.most_tokens();
  setup.planner = candidate.planner;
  setup.memory = candidate.budget.memory;
  if (!made.backward) setup.memory.recompute = Recompute::automatic;
  return setup;
}

void expect_replayed(const Case& made, const Candidate& candidate, const CandidateFigures& figures,
                     const ExpertFfn& experts, const RankPlaces& where) {
  const std::vector<int>& nodes = where.node_of_rank;
  const SimSetup setup = setup_of(made, candidate, experts, nodes);
  Method method = method_of(candidate);
  method.two_levels = where.two_levels;
  method.node_sums = where.sum_in_nodes;
  LayerReplay replay(setup, method, {made.homes});
  const LayerTokens tokens = tokens_of(made);
  replay.run(0, tokens);
  const LayerOutcome& outcome = replay.run(0, tokens);  // the first step's state must not affect the second
  const auto loads = outcome.plan.rank_loads();
  EXPECT_EQ(std::vector(loads.begin(), loads.end()), figures.rank_loads);
  EXPECT_EQ(outcome.reason, figures.reason);
  EXPECT_EQ(static_cast<int>(outcome.chunks.size()), figures.chunks);
  EXPECT_EQ(std::ssize(outcome.sent), figures.transfers);
  EXPECT_EQ(outcome.moved.dispatch, figures.dispatch_bytes);
  EXPECT_EQ(outcome.moved.combine, figures.combine_bytes);
  EXPECT_EQ(outcome.moved.weights, figures.transfer_bytes);
  const double recomputed = tokens.counts.total() == 0 ? 0
                                                       : static_cast<double>(outcome.recomputed) /
                                                             static_cast<double>(tokens.counts.total());
  EXPECT_EQ(recomputed, figures.recomputed_fraction);
  std::vector<std::int64_t> peaks;
  for (const Peaks& each : outcome.peaks) peaks.push_back(each.both());
  if (!where.two_levels) {  // the replay does not count forwarded rows
    EXPECT_EQ(peaks, figures.peak_bytes);
  }
  double between = 0;
  for (std::size_t from = 0; from < nodes.size(); ++from)
    for (std::size_t to = 0; to < nodes.size(); ++to)
      if (nodes[from] != nodes[to]) between += outcome.pair_bytes[from * nodes.size() + to];
  EXPECT_EQ(between, static_cast<double>(figures.bytes_between_nodes));
  const double sum = std::reduce(outcome.pair_bytes.begin(), outcome.pair_bytes.end());
  EXPECT_EQ(sum,
            static_cast<double>(figures.dispatch_bytes + figures.combine_bytes + figures.transfer_bytes));
}

Budget random_budget(const Case& made, std::mt19937_64& random, const ExpertFfn& experts) {
  Budget budget;
  budget.memory.recompute = static_cast<Recompute>(draw(random, 0, 3));
  const int rule = draw(random, 0, 2);
  if (rule > 0) budget.memory.rule.kind = rule == 1 ? ChunkRule::Kind::equal : ChunkRule::Kind::mact;
  budget.memory.rule.count = draw(random, 1, 5);
  if (draw(random, 0, 2) == 0) return budget;
  BudgetShape shape;
  shape.chunk = chunk_shape(made.moe, made.batch.num_ranks(), experts, made.backward);
  shape.max_tokens = made.batch.most_tokens();
  shape.home_experts = made.homes.most_natives();
  for (RankId rank : indices<RankId>(made.batch.num_ranks()))
    shape.copies = std::max<std::int64_t>(shape.copies, made.homes.num_copies(rank));
  shape.recompute = made.backward ? budget.memory.recompute : Recompute::automatic;
  budget.bytes = least_budget(shape) * draw(random, 10, 60) / 10;
  return budget;
}

#if defined(__SANITIZE_THREAD__)
constexpr std::uint64_t kSeeds = 5;
#else
constexpr std::uint64_t kSeeds = 50;
#endif

TEST(Replay, OfRandomStepsIsWhatLayersReport) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    std::mt19937_64 random(seed);
    const Case made = random_case(random);
    const auto experts = make_cpu_expert_ffn(made.moe.expert, made.backward);
    const Budget budget = random_budget(made, random, *experts);
    std::vector<PlannerOptions> planners(3);
    for (std::size_t i = 0; i < planners.size(); ++i) {
      planners[i].kind = static_cast<PlannerOptions::Kind>(i);
      planners[i].min_segment = draw(random, 1, 40);
    }
    const LayerInputs inputs =
        seeded_inputs(made.moe.expert, made.moe.num_experts, made.batch.num_tokens(), seed, made.backward);
    ExperimentSetup setup{.shape = made.moe, .placement = made.homes, .inputs = &inputs};
    setup.backward = made.backward;
    setup.rounds = setup.warm_ups = 1;
    setup.candidates = candidates_of(planners, budget);
    setup.where.node_of_rank = testing::random_nodes(made.batch.num_ranks(), random);
    const bool two_levels =
        !budget.is_given() && Nodes(setup.where.node_of_rank).two_levels() && draw(random, 0, 1) == 1;
    setup.where.two_levels = two_levels;
    setup.where.sum_in_nodes = two_levels && draw(random, 0, 1) == 1;
    const Figures figures = measure(setup, made.batch);
    for (std::size_t i = 0; i < planners.size(); ++i) {
      SCOPED_TRACE(::testing::Message()
                   << "seed " << seed << ", planner " << i << ", budget " << budget.bytes << ", "
                   << name_of(budget.memory.recompute) << ", rule " << name_of(budget.memory.rule));
      expect_replayed(made, setup.candidates[i], figures.candidates[i], *experts, setup.where);
    }
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace evenkeel
