// Two chunks in flight: the same numbers as one at a time, within every budget, and never a third chunk
// alive.
#include "evenkeel/layer/internal/overlap.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "evenkeel/base/error.h"
#include "tests/layer/error_bound.h"
#include "tests/layer/moe_case.h"
#include "tests/layer/same_gradients.h"

namespace evenkeel::testing {
namespace {

constexpr std::int64_t kGenerous = std::int64_t{1} << 30;
using Kind = PlannerOptions::Kind;

// Notes what a pass does with which chunk.
struct Noted {
  std::string what;
  std::set<std::size_t> alive;
  std::size_t most_alive = 0;

  void note(const char* stage, std::size_t i) { what += stage + std::to_string(i) + ' '; }
  void depart(std::size_t i) {
    alive.insert(i);
    most_alive = std::max(most_alive, alive.size());
    note("depart", i);
  }
  void expect(std::size_t i) { note("expect", i); }
  void arrive(std::size_t i) { note("arrive", i); }
  void compute(std::size_t i, int half) { note(half == 0 ? "first" : "second", i); }
  void send_home(std::size_t i) { note("home", i); }
  void finish(std::size_t i) {
    alive.erase(i);
    note("finish", i);
  }
};

// A half is computed between every departure and its arrival, and between what goes home and its sum.
TEST(Overlap, ComputesAHalfWhileMessagesTravel) {
  Noted pass;
  internal::overlap_chunks(3, pass, [&] { pass.what += "meanwhile "; });
  EXPECT_EQ(pass.what,
            "depart0 meanwhile expect0 arrive0 first0 depart1 second0 expect1 home0 arrive1 "
            "first1 finish0 depart2 second1 expect2 home1 arrive2 "
            "first2 finish1 second2 home2 finish2 ");
  EXPECT_TRUE(pass.alive.empty());
}

TEST(Overlap, HasNoThirdChunkAlive) {
  for (std::size_t chunks = 1; chunks < 20; ++chunks) {
    Noted pass;
    internal::overlap_chunks(chunks, pass, [] {});
    EXPECT_EQ(pass.most_alive, std::min<std::size_t>(chunks, 2));
    EXPECT_TRUE(pass.alive.empty());
  }
}

TEST(Overlap, HalvesWorkRatherThanPositions) {
  using Group = Dispatched::Group;
  const Group even[] = {{ExpertId(0), 0, 100}, {ExpertId(1), 100, 200}};
  EXPECT_EQ(internal::middle_of(even, 200, 0), 100);
  EXPECT_EQ(internal::middle_of(even, 200, 50), 100);
  // 3 groups of 50 and 10 cost as much as one of 50 and 130.
  const Group small_first[] = {
      {ExpertId(0), 0, 10}, {ExpertId(1), 10, 20}, {ExpertId(2), 20, 30}, {ExpertId(3), 30, 160}};
  EXPECT_EQ(internal::middle_of(small_first, 160, 50), 30);
  const Group small_last[] = {
      {ExpertId(0), 0, 130}, {ExpertId(1), 130, 140}, {ExpertId(2), 140, 150}, {ExpertId(3), 150, 160}};
  EXPECT_EQ(internal::middle_of(small_last, 160, 50), 130);
  EXPECT_EQ(internal::middle_of({}, 0, 50), 0);
  const Group one[] = {{ExpertId(4), 0, 1}};
  EXPECT_EQ(internal::middle_of(one, 1, 50), 0);
}

MoeCase case_of(std::uint64_t seed, DataType type) {
  std::vector<std::int64_t> tokens = {900, 500, 0, 700};
  if (kThreadsAreWatched) tokens = {180, 100, 0, 140};
  const ExpertShape expert{16, 8, Activation::swiglu, false, type};
  return MoeCase({{16, 3, expert}, std::move(tokens), 2.0, 0.1}, seed);
}

RunOptions options_of(Kind kind, std::int64_t budget, Recompute recompute, int in_flight) {
  RunOptions options;
  options.planner = {kind, 1000, 8, 1000};
  options.backward = true;
  options.steps = 2;
  options.budget = budget;
  options.memory.recompute = recompute;
  options.memory.chunks_in_flight = in_flight;
  return options;
}

// Outputs to the bit, gradients to rounding.
void expect_same(const MoeResult& a, const MoeResult& b, const DenseResult& bound, bool backward = true) {
  EXPECT_EQ(a.output, b.output);
  if (backward) expect_same_gradients(a, b, bound);
}

class TwoInFlight : public ::testing::TestWithParam<std::tuple<DataType, Kind>> {};

TEST_P(TwoInFlight, GiveTheNumbersOfOneWithoutABudget) {
  const auto [type, kind] = GetParam();
  const MoeCase problem = case_of(2, type);
  const DenseResult bound = error_bound(problem, true);
  const MoeResult whole = run(problem, options_of(kind, Arena::kNoBudget, Recompute::automatic, 1));
  for (Recompute recompute : {Recompute::none, Recompute::chunk})
    for (std::int64_t chunks : {1, 2, 3, 9, 61}) {
      if (kThreadsAreWatched && chunks != 3) continue;
      RunOptions options = options_of(kind, Arena::kNoBudget, recompute, 2);
      options.memory.rule = {ChunkRule::Kind::equal, chunks, {}};
      const MoeResult overlapped = run(problem, options);
      EXPECT_EQ(overlapped.chunks, static_cast<std::size_t>(chunks));
      expect_same(overlapped, whole, bound);
      options.backward = false;
      expect_same(run(problem, options), whole, bound, false);
    }
}

TEST_P(TwoInFlight, KeepEveryBudgetFromTheLeastOn) {
  const auto [type, kind] = GetParam();
  const MoeCase problem = case_of(3, type);
  const DenseResult bound = error_bound(problem, true);
  const MoeResult whole = run(problem, options_of(kind, Arena::kNoBudget, Recompute::automatic, 1));
  for (Recompute recompute : {Recompute::automatic, Recompute::chunk})
    for (bool backward : {true, false}) {
      const auto bounded = [&](std::int64_t budget, int in_flight) {
        RunOptions options = options_of(kind, budget, recompute, in_flight);
        options.backward = backward;
        return run(problem, options);
      };
      const std::int64_t least = bounded(kGenerous, 2).least_budget;
      EXPECT_GT(least, bounded(kGenerous, 1).least_budget);
      EXPECT_THROW(bounded(least - 1, 2), BudgetTooSmall);
      for (int step = 0; step < (kThreadsAreWatched ? 2 : 5); ++step) {
        const std::int64_t budget = least + least * step * step / 4;
        const MoeResult overlapped = bounded(budget, 2);
        for (std::int64_t peak : overlapped.peak_bytes) EXPECT_LE(peak, budget);
        if (step == 0 && backward && !kThreadsAreWatched) {
          EXPECT_GT(overlapped.chunks, 2u);
        }
        expect_same(overlapped, whole, bound, backward);
      }
    }
}

INSTANTIATE_TEST_SUITE_P(TypesAndPlanners, TwoInFlight,
                         ::testing::Combine(::testing::Values(DataType::f32, DataType::bf16),
                                            ::testing::Values(Kind::ep, Kind::level)));

TEST(TwoInFlight, AreRefusedWhereAWholeLayerIsComputedAgainAtOnce) {
  const MoeCase problem = case_of(4, DataType::f32);
  EXPECT_THROW(run(problem, options_of(Kind::ep, Arena::kNoBudget, Recompute::whole, 2)), InvalidArgument);
  EXPECT_THROW(run(problem, options_of(Kind::ep, Arena::kNoBudget, Recompute::chunk, 3)), InvalidArgument);
}

}  // namespace
}  // namespace evenkeel::testing
