// The bytes that a step takes of the arena are known exactly before it runs: the model of its bytes, given
// what is dealt to each rank, against the peak that the arena saw.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "evenkeel/budget/least_budget.h"
#include "evenkeel/comm/thread/run_ranks.h"
#include "evenkeel/compute/cpu/expert_ffn.h"
#include "evenkeel/layer/chunk_shape.h"
#include "tests/budget/routed_step.h"
#include "tests/layer/rank_layer.h"

namespace evenkeel::testing {
namespace {

struct StepSetup {
  MoeCase problem;
  MoeOptions options;
  std::int64_t budget = Arena::kNoBudget;
};

struct Peaks {
  std::int64_t forward = 0;
  std::int64_t backward = 0;
};

struct Measured {
  StepPlan plan;
  std::vector<Chunk> chunks;
  std::vector<Peaks> peaks;  // by rank
};

Measured measure(const StepSetup& setup) {
  Measured measured;
  measured.peaks.resize(static_cast<std::size_t>(setup.problem.ranks()));
  run_ranks(setup.problem.ranks(), [&](Communicator& comm) {
    Arena arena(Device::cpu(), setup.budget);
    RankLayer rank(setup.problem, comm, arena, setup.options);
    Peaks& peaks = measured.peaks[comm.rank().offset()];
    ForwardState state = rank.forward();
    peaks.forward = arena.peak_bytes();
    if (comm.rank() == RankId(0)) {
      measured.plan = state.plan();
      measured.chunks.assign(state.chunks().begin(), state.chunks().end());
    }
    if (!setup.options.with_backward) return;
    arena.reset_peak();
    rank.backward(std::move(state));
    peaks.backward = arena.peak_bytes();
  });
  return measured;
}

// Of what a step's bytes are told: of its rows as they are dealt, or as ranks know them when they plan, from
// their table of blocks, in which chunks then end.
enum class ToldOf { dealt_rows, blocks };

// One step's bytes, from its plan, its chunks and its tokens' choices.
class Prediction {
 public:
  Prediction(const StepSetup& setup, const Measured& measured, ToldOf told_of = ToldOf::dealt_rows)
      : setup_(setup),
        plan_(measured.plan),
        chunks_(measured.chunks),
        step_(step_of(setup.problem)),
        told_of_(told_of) {
    const MoeShape& moe = setup.problem.shape().moe;
    const bool backward = setup.options.with_backward;
    shape_ = chunk_shape(moe, setup.problem.ranks(), *make_cpu_expert_ffn(moe.expert, backward), backward);
    const MemoryOptions& memory = setup.options.cpu().memory;
    cuts_ = setup.budget != Arena::kNoBudget || memory.recompute == Recompute::whole ||
            memory.recompute == Recompute::chunk || memory.rule.kind == ChunkRule::Kind::equal;
    units_ = cuts_ ? (max_tokens() + kStepBlocks - 1) / kStepBlocks * kStepBlocks : 1;
    least_.chunk = shape_;
    least_.max_tokens = max_tokens();
    least_.home_experts = step_.placement.most_natives();
    least_.recompute = memory.recompute;
    const bool bounded = setup.budget != Arena::kNoBudget;
    shape_ = with_workspaces(
        shape_, bounded ? setup.budget - least_budget(least_) : std::numeric_limits<std::int64_t>::max());
  }

  std::vector<Peaks> peaks() const {
    std::vector<Peaks> all(step_.ids.size());
    add_forward(all);
    if (shape_.with_backward) add_backward(all);
    return all;
  }

 private:
  static RoutedStep step_of(const MoeCase& problem) {
    const MoeShape& moe = problem.shape().moe;
    RoutedStep step{moe.top_k, LayerPlacement::contiguous(moe.num_experts, problem.ranks()), {}};
    for (int rank = 0; rank < problem.ranks(); ++rank) {
      const TopK mine = problem.top_k_of(rank);
      step.ids.emplace_back(mine.experts.begin(), mine.experts.end());
    }
    return step;
  }

  std::int64_t max_tokens() const { return std::ranges::max(setup_.problem.shape().tokens); }
  std::int64_t table() const { return cuts_ ? block_table_bytes(shape_, kStepBlocks) : 0; }
  // Bytes that the tokens' choices take until backward, and before it where memory for them is set aside.
  std::int64_t choices(std::size_t rank) const {
    if (!shape_.with_backward) return 0;
    if (setup_.budget != Arena::kNoBudget) return state_bytes(shape_, max_tokens());
    return whole_lines(static_cast<std::int64_t>(step_.ids[rank].size()) * 8);
  }
  std::int64_t aside(std::size_t rank) const { return setup_.budget != Arena::kNoBudget ? choices(rank) : 0; }
  std::int64_t borrowed(std::size_t rank) const {
    return std::ranges::count(plan_.transfers(), RankId(static_cast<int>(rank)), &Transfer::to);
  }
  std::int64_t landing(std::size_t rank) const { return borrowed(rank) > 0 ? shape_.landing_bytes : 0; }
  // Bytes of borrowed weights in backward, where something is computed again and where nothing is.
  std::int64_t backward_weights(std::size_t rank, bool again) const {
    const bool whole = setup_.options.cpu().memory.recompute == Recompute::whole;
    const std::int64_t besides = whole ? shape_.forward_weight_bytes : shape_.recompute_weight_bytes;
    return borrowed(rank) * (shape_.backward_weight_bytes + (again ? besides : 0));
  }
  bool lends(std::size_t rank) const {
    return std::ranges::count(plan_.transfers(), RankId(static_cast<int>(rank)), &Transfer::from) > 0;
  }

  static std::int64_t saved(const Chunk& chunk, const ChunkLoad& load) {
    return chunk.kept ? load.positions_here : 0;
  }
  std::int64_t held_of(const Chunk& chunk, const ChunkLoad& load) const {
    return held_bytes(shape_, load, saved(chunk, load));
  }

  std::vector<std::vector<ChunkLoad>> loads_of(const RoutedStep& step,
                                               const std::vector<Chunk>& chunks) const {
    if (told_of_ == ToldOf::dealt_rows) return dealt_loads(step, plan_, chunks, units_);
    std::vector<std::int32_t> numbers;
    BlockLoads known;
    known.read(block_table(step, kStepBlocks, numbers), step.placement, step.tokens(), step.k);
    known.follow(plan_);
    std::vector<std::vector<ChunkLoad>> loads;
    for (const Chunk& chunk : chunks) {
      auto& of_ranks = loads.emplace_back();
      const auto block = [&](std::int64_t unit) { return static_cast<int>(unit * kStepBlocks / units_); };
      for (RankId rank : indices<RankId>(step.ranks()))
        of_ranks.push_back(known.load(rank, block(chunk.begin), block(chunk.end)));
    }
    return loads;
  }

  void add_forward(std::vector<Peaks>& all) const {
    const auto dealt = loads_of(step_, chunks_);
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
      std::int64_t held = choices(rank) + borrowed(rank) * shape_.forward_weight_bytes;
      std::int64_t most = std::max(aside(rank) + table(), held + landing(rank));
      for (std::size_t c = 0; c < chunks_.size(); ++c) {
        const ChunkLoad& load = dealt[c][rank];
        most = std::max(most, held + forward_bytes(shape_, load, saved(chunks_[c], load)));
        if (chunks_[c].kept) held += held_of(chunks_[c], load);
      }
      all[rank].forward = most;
    }
  }

  void add_backward(std::vector<Peaks>& all) const {
    const auto dealt = loads_of(step_, chunks_);
    const auto rest_begin = std::ranges::find(chunks_, false, &Chunk::kept);
    const auto kept = static_cast<std::size_t>(rest_begin - chunks_.begin());
    std::vector<std::vector<ChunkLoad>> rest;
    if (rest_begin != chunks_.end()) rest = rest_loads(*rest_begin);
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
      const std::int64_t gradients = borrowed(rank) * shape_.gradient_bytes;
      const std::int64_t away = backward_weights(rank, !rest.empty()) + gradients;
      std::int64_t held = choices(rank);
      for (std::size_t c = 0; c < kept; ++c) held += held_of(chunks_[c], dealt[c][rank]);
      std::int64_t most = held;
      for (std::size_t c = kept; c-- > 0;) {
        const ChunkLoad& load = dealt[c][rank];
        held -= held_of(chunks_[c], load);
        const std::int64_t positions = saved(chunks_[c], load);
        if (positions > 0) most = std::max(most, held + away + backward_bytes(shape_, load, positions));
      }
      if (!rest.empty()) most = std::max(most, held + (kept > 0 ? away : 0) + table());
      for (const auto& loads : rest) most = std::max(most, held + away + again_bytes(loads[rank]));
      if (lends(rank)) most = std::max(most, held + gradients + shape_.gradient_bytes);
      all[rank].backward = most;
    }
  }

  std::int64_t again_bytes(const ChunkLoad& load) const {
    if (setup_.options.cpu().memory.recompute != Recompute::whole) return recompute_bytes(shape_, load);
    return std::max(backward_bytes(shape_, load, load.positions_here),
                    forward_bytes(shape_, load, load.positions_here));
  }

  // The loads of the part that is computed again, in as many equal parts as the rule says.
  std::vector<std::vector<ChunkLoad>> rest_loads(const Chunk& first) const {
    RoutedStep rest = step_;
    for (auto& ids : rest.ids) {
      const auto tokens = static_cast<std::int64_t>(ids.size()) / rest.k;
      ids.erase(ids.begin(), ids.begin() + first.first_token(tokens, units_) * rest.k);
    }
    const ChunkRule& rule = setup_.options.cpu().memory.rule;
    const std::int64_t count = rule.kind == ChunkRule::Kind::equal ? rule.count : 1;
    std::vector<Chunk> parts;
    for (std::int64_t i = 0; i < count; ++i) parts.push_back({units_ * i / count, units_ * (i + 1) / count});
    return loads_of(rest, parts);
  }

  const StepSetup& setup_;
  const StepPlan& plan_;
  const std::vector<Chunk>& chunks_;
  RoutedStep step_;
  ToldOf told_of_;
  ChunkShape shape_;
  BudgetShape least_;  // with the least workspaces
  bool cuts_ = false;
  std::int64_t units_ = 1;
};

MoeCase case_of(int ranks, const ExpertShape& expert, std::uint64_t seed) {
  std::vector<std::int64_t> tokens;
  for (int rank = 0; rank < ranks; ++rank) tokens.push_back(rank % 3 == 2 ? 90 : 800 - 37 * rank);
  return MoeCase({{16, 3, expert}, tokens, 1.5, 0.05}, seed);
}

MoeCase case_of(int ranks, DataType type, std::uint64_t seed, std::int64_t intermediate = 32) {
  return case_of(ranks, {64, intermediate, Activation::swiglu, false, type}, seed);
}

MoeOptions options_of(PlannerOptions::Kind kind, Recompute recompute, std::int64_t chunks) {
  MoeOptions options;
  options.planner = {kind, 1000, 8, 1000};
  options.cpu().memory.recompute = recompute;
  if (chunks > 1) options.cpu().memory.rule = {ChunkRule::Kind::equal, chunks, {}};
  // Transfers are taken to be free, so that no spilled plan is given up in backward unseen.
  options.cpu().memory.cost.link_bytes_per_second = 1e30;
  options.cpu().memory.cost.weight_bytes_per_second = 1e30;
  return options;
}

// No less, and no more than `slack`, a share, above.
void expect_predicted(const std::vector<Peaks>& measured, const std::vector<Peaks>& predicted,
                      double slack = 0) {
  for (std::size_t rank = 0; rank < measured.size(); ++rank)
    for (auto peak : {&Peaks::forward, &Peaks::backward}) {
      const std::int64_t real = measured[rank].*peak;
      const std::int64_t said = predicted[rank].*peak;
      EXPECT_LE(real, said) << "rank " << rank << (peak == &Peaks::forward ? ", forward" : ", backward");
      EXPECT_GE(static_cast<double>(real) * (1 + slack), static_cast<double>(said))
          << "rank " << rank << (peak == &Peaks::forward ? ", forward" : ", backward");
    }
}

using Kind = PlannerOptions::Kind;

std::vector<int> rank_counts() {
  if (kThreadsAreWatched) return {2, 5};
  return {1, 2, 5, 8};
}

class Predicted : public ::testing::TestWithParam<std::tuple<int, DataType, Kind>> {};

TEST_P(Predicted, PeakIsMetToTheByte) {
  const auto [ranks, type, kind] = GetParam();
  const auto products = make_cpu_expert_ffn(case_of(1, type, 1).shape().moe.expert, true);  // kept for all
  for (bool backward : {true, false})
    for (Recompute recompute : {Recompute::none, Recompute::whole, Recompute::chunk, Recompute::automatic})
      for (std::int64_t chunks : {1, 4, 9}) {
        if (!backward && recompute != Recompute::automatic) continue;
        if (kThreadsAreWatched && chunks != 4) continue;
        StepSetup setup{case_of(ranks, type, 3), options_of(kind, recompute, chunks)};
        setup.options.with_backward = backward;
        const Measured measured = measure(setup);
        ASSERT_EQ(measured.chunks.size(), static_cast<std::size_t>(chunks));
        SCOPED_TRACE("policy " + std::to_string(static_cast<int>(recompute)) + ", " + std::to_string(chunks) +
                     " chunks, backward " + std::to_string(backward));
        expect_predicted(measured.peaks, Prediction(setup, measured).peaks());
      }
}

INSTANTIATE_TEST_SUITE_P(Steps, Predicted,
                         ::testing::Combine(::testing::ValuesIn(rank_counts()),
                                            ::testing::Values(DataType::f32, DataType::bf16),
                                            ::testing::Values(Kind::ep, Kind::level)));

// Of shape, experts and their order of work, the others.
constexpr ExpertShape kOtherExperts[] = {{48, 120, Activation::clamped_swiglu, true, DataType::f32},
                                         {160, 24, Activation::clamped_swiglu, true, DataType::bf16},
                                         {40, 72, Activation::gelu, false, DataType::bf16},
                                         {96, 16, Activation::gelu, true, DataType::f32}};

class PredictedOf : public ::testing::TestWithParam<std::tuple<ExpertShape, Kind>> {
 protected:
  // Steps of three and six ranks, each in one chunk and in `chunks`.
  void expect_steps_predicted(std::initializer_list<Recompute> policies, std::int64_t chunks,
                              std::uint64_t seed, ToldOf told_of) const {
    const auto [expert, kind] = GetParam();
    const auto products = make_cpu_expert_ffn(expert, true);
    for (int ranks = 3; ranks <= (kThreadsAreWatched ? 3 : 6); ranks += 3)
      for (Recompute recompute : policies)
        for (std::int64_t count : {std::int64_t{1}, chunks}) {
          StepSetup setup{case_of(ranks, expert, seed), options_of(kind, recompute, count)};
          const bool by_blocks = told_of == ToldOf::blocks;
          if (by_blocks) setup.budget = std::int64_t{1} << 28;  // so that steps are counted by blocks
          const Measured measured = measure(setup);
          SCOPED_TRACE(std::to_string(ranks) + " ranks, " + std::to_string(count) + " chunks");
          expect_predicted(measured.peaks, Prediction(setup, measured, told_of).peaks(),
                           !by_blocks                ? 0
                           : measured.plan.spilled() ? 0.65
                                                     : 0.02);
        }
  }
};

TEST_P(PredictedOf, OtherExpertsThePeakIsMetToTheByte) {
  expect_steps_predicted({Recompute::none, Recompute::chunk}, 5, 7, ToldOf::dealt_rows);
}

// By the table that ranks gather before they plan, which says nothing of tokens that go to a rank for a split
// expert and for another one: each is taken to be a row of its own.
TEST_P(PredictedOf, OtherExpertsThePeakIsKnownBeforeAnythingIsDealt) {
  expect_steps_predicted({Recompute::none, Recompute::whole, Recompute::chunk}, 4, 8, ToldOf::blocks);
}

INSTANTIATE_TEST_SUITE_P(Steps, PredictedOf,
                         ::testing::Combine(::testing::ValuesIn(kOtherExperts),
                                            ::testing::Values(Kind::ep, Kind::least_loaded, Kind::level)));

// Where tokens have many experts to choose from, they seldom go to a rank twice.
TEST(PredictedOfManyExperts, ThePeakIsKnownBeforeAnythingIsDealtAndNearer) {
  const ExpertShape expert{64, 64, Activation::swiglu, false, DataType::f32};
  const std::vector<std::int64_t> tokens(8, 500);
  const auto products = make_cpu_expert_ffn(expert, true);
  for (const Recompute recompute : {Recompute::none, Recompute::chunk}) {
    const StepSetup setup{MoeCase({{128, 4, expert}, tokens, 1.5, 0.0}, 9),
                          options_of(Kind::level, recompute, 1), std::int64_t{1} << 28};
    const Measured measured = measure(setup);
    ASSERT_TRUE(measured.plan.spilled());
    expect_predicted(measured.peaks, Prediction(setup, measured, ToldOf::blocks).peaks(), 0.15);
  }
}

// Some chunks are kept and the rest computed again, as a budget has it.
TEST(PredictedUnderABudget, PeakIsMetToTheByteWhereSomeChunksAreKept) {
  const MoeCase problem = case_of(3, DataType::f32, 5);
  const auto products = make_cpu_expert_ffn(problem.shape().moe.expert, true);
  int compared = 0;
  for (std::int64_t kib = 900; kib <= 3300; kib += 150) {
    StepSetup setup{problem, options_of(Kind::ep, Recompute::automatic, 8), kib * 1024};
    const Measured measured = measure(setup);
    const std::vector<Peaks> predicted = Prediction(setup, measured).peaks();
    const auto kept = std::ranges::count(measured.chunks, true, &Chunk::kept);
    const bool fits = std::ranges::all_of(predicted, [&](const Peaks& peaks) {
      return std::max(peaks.forward, peaks.backward) <= setup.budget;
    });
    for (const Peaks& peaks : measured.peaks)
      EXPECT_LE(std::max(peaks.forward, peaks.backward), setup.budget);
    // Where a part does not fit, backward is cut otherwise, which nobody outside sees.
    if (measured.chunks.size() != 8 || kept == 0 || kept == 8 || !fits) continue;
    ++compared;
    SCOPED_TRACE(std::to_string(kib) + " KiB, kept " + std::to_string(kept));
    expect_predicted(measured.peaks, predicted);
  }
  EXPECT_GT(compared, 2);
}

}  // namespace
}  // namespace evenkeel::testing
