// Layers of random shapes, placements, planners and policies, under the least budget and above it. The budget
// is always kept. Compared with a run without a budget, outputs are bitwise equal and gradients equal within
// rounding.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <random>

#include "tests/layer/error_bound.h"
#include "tests/layer/moe_case.h"
#include "tests/layer/same_gradients.h"

namespace evenkeel::testing {
namespace {

class Dice {
 public:
  explicit Dice(unsigned seed) : random_(seed) {}
  int below(int n) { return static_cast<int>(random_() % static_cast<unsigned>(n)); }
  int between(int low, int high) { return low + below(high - low + 1); }
  template <class T>
  T one_of(std::initializer_list<T> values) {
    return values.begin()[below(static_cast<int>(values.size()))];
  }

 private:
  std::mt19937 random_;
};

CaseShape random_shape(Dice& dice) {
  const int ranks = dice.between(1, 6);
  const ExpertShape expert{dice.one_of({8, 24, 72, 200}), dice.one_of({8, 40}), Activation::swiglu,
                           dice.below(3) == 0, dice.one_of({DataType::f32, DataType::bf16})};
  const int experts = dice.between(ranks, 3 * ranks);
  CaseShape shape{{experts, dice.between(1, std::min(4, experts)), expert}, {}, 1.0, 0.05};
  for (int rank = 0; rank < ranks; ++rank)
    shape.tokens.push_back(dice.below(4) == 0 ? 0 : dice.between(1, 40));
  if (std::ranges::max(shape.tokens) == 0) shape.tokens.front() = 1;
  return shape;
}

// Contiguous homes (empty), or one or two random homes per expert. Each rank has at least one expert.
std::vector<std::vector<int>> random_homes(const CaseShape& shape, Dice& dice) {
  std::vector<std::vector<int>> homes;
  const int kind = dice.below(3);
  if (kind == 0) return homes;
  const int ranks = static_cast<int>(shape.tokens.size());
  for (int expert = 0; expert < shape.moe.num_experts; ++expert) {
    const int first = expert < ranks ? expert : dice.below(ranks);
    homes.push_back({first});
    if (kind == 2 && ranks > 1 && dice.below(2) == 0) homes.back().push_back((first + 1) % ranks);
  }
  return homes;
}

// Randomly does one of three things: it keeps the routing, sends all tokens to one expert, or sends one
// rank's tokens elsewhere and all other tokens to one expert. Returns true in the last case if there are
// several ranks.
bool route(MoeCase& problem, Dice& dice) {
  const int kind = dice.below(3);
  if (kind == 0) return false;
  const MoeShape& moe = problem.shape().moe;
  const int ranks = problem.ranks(), busy = dice.below(ranks), hot = dice.below(moe.num_experts);
  std::size_t at = 0;
  for (int rank = 0; rank < ranks; ++rank)
    for (std::int64_t token = 0; token < problem.shape().tokens[static_cast<std::size_t>(rank)]; ++token)
      for (int i = 0; i < moe.top_k; ++i) {
        const int away = (hot + 1 + i * moe.num_experts / ranks) % moe.num_experts;
        problem.ids()[at++] = kind == 1 && rank == busy ? away : hot;
      }
  return kind == 1 && ranks > 1;
}

RunOptions random_options(const CaseShape& shape, Dice& dice) {
  using Kind = PlannerOptions::Kind;
  RunOptions options;
  options.planner = {dice.one_of({Kind::ep, Kind::least_loaded, Kind::level}), 1000, dice.one_of({1, 16}),
                     1000};
  options.backward = dice.below(4) > 0;
  options.homes = random_homes(shape, dice);
  options.memory.recompute = dice.one_of(
      {Recompute::automatic, Recompute::automatic, Recompute::chunk, Recompute::whole, Recompute::none});
  options.memory.keep_plan = dice.below(2) == 0;
  if (dice.below(4) == 0) options.memory.rule = {ChunkRule::Kind::equal, dice.between(1, 5), {}};
  return options;
}

// EVENKEEL_STORM=20 runs 20 times as many rounds, as `make test-long` does.
int rounds() {
  const char* const given = std::getenv("EVENKEEL_STORM");
  const int seeds = given != nullptr ? std::stoi(given) : 1;
  return kUnderThreadSanitizer ? 15 : 50 * seeds;
}

// Counts rounds that ran in several chunks under the least budget. `copies` counts those in which experts had
// copies. `exchanged` counts those under plain EP in which one rank received all others' tokens and sent its
// own away, with rows so wide that a single row exceeds any rounding of sizes.
struct CoveredRounds {
  int copies = 0;
  int exchanged = 0;
};

void expect_kept(int round, CoveredRounds& covered) {
  SCOPED_TRACE("round " + std::to_string(round));
  Dice dice(static_cast<unsigned>(round));
  const CaseShape shape = random_shape(dice);
  MoeCase problem(shape, static_cast<std::uint64_t>(round));
  const bool exchanged = route(problem, dice);
  RunOptions options = random_options(shape, dice);
  RunOptions free_options = options;
  free_options.memory = {};
  const MoeResult free = run(problem, free_options);
  const DenseResult bound = error_bound(problem, options.backward);
  options.budget = std::int64_t{1} << 30;
  const std::int64_t least = run(problem, options).least_budget;
  for (const std::int64_t budget : {least, least + least * dice.below(300) / 100}) {
    options.budget = budget;
    const MoeResult bounded = run(problem, options);
    for (const std::int64_t peak : bounded.peak_bytes) ASSERT_LE(peak, budget);
    ASSERT_EQ(bounded.output, free.output);
    if (options.backward) expect_same_gradients(bounded, free, bound);
    if (budget != least || bounded.chunks < 2) continue;
    covered.copies += std::ranges::any_of(options.homes, [](const auto& homes) { return homes.size() > 1; });
    covered.exchanged += exchanged && options.planner.kind == PlannerOptions::Kind::ep && options.backward &&
                         shape.moe.expert.hidden >= 72;
  }
}

TEST(BudgetOfRandomShapes, IsKeptAndChangesNoNumber) {
  CoveredRounds covered;
  for (int round = 0; round < rounds() && !HasFailure(); ++round)
    EXPECT_NO_THROW(expect_kept(round, covered)) << "round " << round;
  EXPECT_GT(covered.copies, kUnderThreadSanitizer ? 0 : 5);
  EXPECT_GT(covered.exchanged, kUnderThreadSanitizer ? -1 : 0);
}

}  // namespace
}  // namespace evenkeel::testing
