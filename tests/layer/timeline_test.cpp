// A step's timeline shows every phase and every arena byte at every moment, and recording it changes nothing.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <optional>
#include <ranges>
#include <set>
#include <string>

#include "evenkeel/base/error.h"
#include "evenkeel/comm/thread/run_ranks.h"
#include "evenkeel/layer/step_timeline.h"
#include "tests/layer/rank_layer.h"
#include "tests/routing/message.h"

namespace evenkeel::testing {
namespace {

using Kind = PlannerOptions::Kind;

constexpr std::int64_t kAmple = std::int64_t{1} << 30;
constexpr std::int64_t kLeast = 0;      // stands for the layer's least budget
constexpr std::int64_t kSomeKept = -2;  // stands for a budget at which some chunks are kept

// Products so slow that it pays to keep all that fits in memory.
constexpr Machine kSlowProducts = {.flops_per_second = 1e7, .chunk_seconds = 0};

struct Setting {
  const char* name;
  bool backward = true;
  std::int64_t budget = Arena::kNoBudget;
  Recompute recompute = Recompute::automatic;
  ChunkRule rule = {};
  Machine cost = {};
};

MoeCase hot_case() {
  return MoeCase({{16, 3, {16, 8, Activation::swiglu, false, DataType::f32}}, {600, 250, 0, 400}, 2.5, 0.1},
                 5);
}

struct Watched {
  StepRecord record;
  std::int64_t peak = 0;
  std::int64_t in_use_before = 0;
  std::int64_t in_use_after = 0;
  // By pass (true: backward), from the layer's statistics.
  std::map<bool, int> chunks;
  std::map<bool, std::array<double, kPhases>> cpu_seconds;
  std::int64_t least_budget = 0;
};

// Records the second step of each rank, with or without a timeline.
std::vector<Watched> second_step(const MoeCase& problem, Kind kind, const Setting& setting,
                                 bool with_timeline) {
  std::vector<Watched> watched(static_cast<std::size_t>(problem.ranks()));
  run_ranks(problem.ranks(), [&](Communicator& comm) {
    Watched& mine = watched[comm.rank().offset()];
    Arena arena(Device::cpu(), setting.budget);
    std::unique_ptr<StepTimeline> timeline;
    MoeOptions options;
    options.planner = {kind, 1000, 4, 1000};
    options.with_backward = setting.backward;
    options.cpu().memory.recompute = setting.recompute;
    options.cpu().memory.rule = setting.rule;
    options.cpu().memory.cost = setting.cost;
    options.cpu().on_step = [&](const StepStatistics& step) {
      mine.chunks[step.backward] = step.chunks;
      mine.cpu_seconds[step.backward] = step.cpu_seconds;
    };
    if (with_timeline) {
      timeline = std::make_unique<StepTimeline>(arena);
      options.cpu().on_phase = [&](const TimedPhase& phase) { timeline->add(phase); };
    }
    RankLayer rank(problem, comm, arena, options);
    mine.least_budget = rank.layer().least_budget();
    for (int step = 0; step < 2; ++step) {
      arena.reset_peak();
      if (timeline) timeline->restart();
      mine.in_use_before = arena.in_use_bytes();
      if (setting.backward)
        rank.step();
      else
        rank.forward();
    }
    mine.peak = arena.peak_bytes();
    mine.in_use_after = arena.in_use_bytes();
    if (timeline) mine.record = timeline->record();
  });
  return watched;
}

// When a buffer was lent; empty if before the record began.
std::optional<StepMoment> moment_of(const StepRecord& record, const StepRecord::Lent& lent) {
  if (lent.begin == 0) return std::nullopt;
  const double lent_at = record.seconds[lent.begin];
  const auto after = std::ranges::upper_bound(record.phases, lent_at, {}, &TimedPhase::begin);
  return std::prev(after)->moment;
}

// True if a rank kept some of a step's chunks and dispatched the others again.
bool keeps_some(const Watched& step) {
  const auto is_held = [&](const StepRecord::Lent& lent) {
    const auto moment = moment_of(step.record, lent);
    return moment && !moment->backward && lent.loan.lifetime == Lifetime::held;
  };
  const auto is_dispatched_again = [&](const StepRecord::Lent& lent) {
    const auto moment = moment_of(step.record, lent);
    return moment && moment->backward && lent.loan.name == std::string("dispatched rows");
  };
  return std::ranges::any_of(step.record.buffers, is_held) &&
         std::ranges::any_of(step.record.buffers, is_dispatched_again);
}

// Searches for a budget at which a rank keeps only some chunks. Such a budget depends on the bytes that this
// CPU's products take.
Setting keeping_some(const MoeCase& problem, Kind kind, Setting setting) {
  for (setting.budget = 250000; setting.budget > 150000; setting.budget -= 10000)
    if (std::ranges::any_of(second_step(problem, kind, setting, true), keeps_some)) break;
  return setting;
}

Setting settled(const MoeCase& problem, Kind kind, Setting setting) {
  if (setting.budget == kSomeKept) return keeping_some(problem, kind, setting);
  if (setting.budget != kLeast) return setting;
  setting.budget = kAmple;
  setting.budget = second_step(problem, Kind::ep, setting, false).front().least_budget;
  return setting;
}

// A setting with its recorded steps; each setting is run once.
struct Case {
  Setting setting;
  std::vector<Watched> steps;  // by rank
};
const Case& case_of(const MoeCase& problem, Kind kind, const Setting& setting) {
  static std::map<std::pair<Kind, std::string>, Case> cases;
  const auto [at, is_new] = cases.try_emplace({kind, setting.name});
  if (is_new) {
    at->second.setting = settled(problem, kind, setting);
    at->second.steps = second_step(problem, kind, at->second.setting, true);
  }
  return at->second;
}

class Timeline : public ::testing::TestWithParam<std::tuple<Kind, Setting>> {
 protected:
  const MoeCase problem_ = hot_case();
  const Case& case_ = case_of(problem_, std::get<0>(GetParam()), std::get<1>(GetParam()));
  const Setting& setting_ = case_.setting;
  const std::vector<Watched>& steps_ = case_.steps;
};

TEST_P(Timeline, AddsUpAtEveryPointAndReachesThePeak) {
  for (const Watched& step : steps_) {
    const StepRecord& record = step.record;
    ASSERT_GT(record.in_use.size(), 10u);
    std::vector<std::int64_t> sums(record.in_use.size(), 0);
    for (const StepRecord::Lent& lent : record.buffers)
      for (std::size_t point = lent.begin; point < lent.end; ++point) sums[point] += lent.loan.bytes;
    EXPECT_EQ(sums, record.in_use);
    EXPECT_EQ(std::ranges::max(record.in_use), step.peak);
    EXPECT_EQ(record.in_use.front(), step.in_use_before);
    EXPECT_EQ(record.in_use.back(), step.in_use_after);
  }
}

TEST_P(Timeline, HasAPointForEachBufferThatComesOrGoesAndNoOther) {
  for (const Watched& step : steps_) {
    EXPECT_EQ(step.record.seconds.size(), step.record.in_use.size());
    EXPECT_TRUE(std::ranges::is_sorted(step.record.seconds));
    std::vector<int> happened(step.record.in_use.size(), 0);
    for (const StepRecord::Lent& lent : step.record.buffers) {
      ++happened[lent.begin];
      if (lent.end < happened.size()) ++happened[lent.end];
    }
    EXPECT_EQ(std::ranges::count(happened | std::views::drop(1), 1), std::ssize(happened) - 1);
  }
}

TEST_P(Timeline, KnowsWhatWasLentBeforeAndThatAllElseCameBack) {
  for (const Watched& step : steps_) {
    std::int64_t before = 0;
    for (const StepRecord::Lent& lent : step.record.buffers) {
      EXPECT_EQ(lent.end == step.record.in_use.size(), lent.begin == 0) << lent.loan.name;
      if (lent.begin > 0) continue;
      before += lent.loan.bytes;
      EXPECT_EQ(lent.loan.name, std::string("choices of states"));
    }
    EXPECT_EQ(before, step.in_use_before);
    EXPECT_EQ(before > 0, setting_.backward && setting_.budget != Arena::kNoBudget);
  }
}

TEST_P(Timeline, NeverHasTwoBuffersInOnePlace) {
  for (const Watched& step : steps_)
    for (const StepRecord::Lent& a : step.record.buffers)
      for (const StepRecord::Lent& b : step.record.buffers) {
        if (&a == &b || a.begin >= b.end || b.begin >= a.end) continue;
        ASSERT_TRUE(a.loan.begin + a.loan.bytes <= b.loan.begin ||
                    b.loan.begin + b.loan.bytes <= a.loan.begin)
            << a.loan.name << " and " << b.loan.name;
      }
}

TEST_P(Timeline, TellsThePhaseInWhichABufferIsLent) {
  const std::map<std::string, Phase> phases = {
      {"table of blocks", Phase::plan},         {"routes", Phase::dispatch},
      {"rows to send", Phase::dispatch},        {"dispatched rows", Phase::dispatch},
      {"borrowed weights", Phase::transfer},    {"foreign weight gradients", Phase::transfer},
      {"returned gradient", Phase::transfer},   {"products", Phase::compute},
      {"dispatched gradients", Phase::dispatch}};
  std::set<std::string> seen;
  for (const Watched& step : steps_)
    for (const StepRecord::Lent& lent : step.record.buffers) {
      const auto expected = phases.find(lent.loan.name);
      if (expected == phases.end()) continue;
      seen.insert(lent.loan.name);
      const auto moment = moment_of(step.record, lent);
      ASSERT_TRUE(moment);
      EXPECT_EQ(moment->phase, expected->second) << lent.loan.name;
      EXPECT_EQ(moment->chunk < 0, expected->second == Phase::plan || expected->second == Phase::transfer)
          << lent.loan.name;
    }
  EXPECT_GE(seen.size(), setting_.backward ? 5u : 4u);
}

TEST_P(Timeline, GoesThroughPassesAndChunksInTheirOrder) {
  for (const Watched& step : steps_) {
    const auto& phases = step.record.phases;
    ASSERT_FALSE(phases.empty());
    EXPECT_EQ(phases.front().moment, StepMoment());
    std::map<bool, int> chunks;
    for (std::size_t i = 0; i < phases.size(); ++i) {
      const StepMoment& moment = phases[i].moment;
      EXPECT_LE(phases[i].begin, phases[i].end);
      if (i > 0) {
        const TimedPhase& before = phases[i - 1];
        EXPECT_LE(before.moment.backward, moment.backward);
        if (before.moment.backward == moment.backward)
          EXPECT_EQ(before.end, phases[i].begin);
        else
          EXPECT_LE(before.end, phases[i].begin);
      }
      if (moment.chunk < 0) continue;
      EXPECT_TRUE(moment.chunk == chunks[moment.backward] || moment.chunk + 1 == chunks[moment.backward]);
      chunks[moment.backward] = moment.chunk + 1;
    }
    EXPECT_EQ(chunks, step.chunks);
  }
}

TEST_P(Timeline, AddsUpToTheCpuTimeOfEveryPhase) {
  for (const Watched& step : steps_) {
    std::map<bool, std::array<double, kPhases>> cpu_seconds;
    for (const TimedPhase& phase : step.record.phases)
      cpu_seconds[phase.moment.backward][static_cast<std::size_t>(phase.moment.phase)] += phase.cpu_seconds;
    EXPECT_EQ(cpu_seconds, step.cpu_seconds);
  }
}

// Checks that the settings really differ.
TEST_P(Timeline, IsOfStepsThatAreCutWhereTheBudgetIsSmall) {
  const Watched& step = steps_.front();
  const bool small = setting_.budget == step.least_budget || setting_.name == std::string("some_kept");
  if (small) {
    EXPECT_GT(step.chunks.at(setting_.backward), 1);
  }
  if (setting_.name == std::string("three_chunks")) {
    EXPECT_EQ(step.chunks.at(true), 3);
  }
  if (setting_.name == std::string("ample")) {
    EXPECT_EQ(step.chunks.at(true), 1);
  }
  if (setting_.name == std::string("some_kept")) {
    EXPECT_TRUE(std::ranges::any_of(steps_, keeps_some));
  }
}

TEST_P(Timeline, ChangesNothingOfWhatItWatches) {
  const std::vector<Watched> alone = second_step(problem_, std::get<0>(GetParam()), setting_, false);
  for (std::size_t rank = 0; rank < alone.size(); ++rank) {
    EXPECT_EQ(alone[rank].peak, steps_[rank].peak);
    EXPECT_EQ(alone[rank].chunks, steps_[rank].chunks);
    EXPECT_EQ(alone[rank].in_use_after, steps_[rank].in_use_after);
  }
}

INSTANTIATE_TEST_SUITE_P(
    PlannersAndMemory, Timeline,
    ::testing::Combine(
        ::testing::Values(Kind::ep, Kind::level),
        ::testing::Values(Setting{"forward", false}, Setting{"backward"},
                          Setting{"forward_at_the_least", false, kLeast},
                          Setting{"backward_at_the_least", true, kLeast}, Setting{"ample", true, kAmple},
                          Setting{.name = "some_kept", .budget = kSomeKept, .cost = kSlowProducts},
                          Setting{"whole", true, Arena::kNoBudget, Recompute::whole},
                          Setting{"by_chunk", true, Arena::kNoBudget, Recompute::chunk},
                          Setting{"three_chunks",
                                  true,
                                  Arena::kNoBudget,
                                  Recompute::none,
                                  {.kind = ChunkRule::Kind::equal, .count = 3}})),
    [](const auto& at) {
      return std::string(std::get<0>(at.param) == Kind::ep ? "ep_" : "level_") + std::get<1>(at.param).name;
    });

TEST(StepTimeline, KeepsWhatIsStillLentWhenItStartsAgain) {
  Arena arena(Device::cpu(), 1 << 20);
  StepTimeline timeline(arena);
  timeline.add({.moment = {.phase = Phase::dispatch, .chunk = 2}, .begin = 1, .end = 3});
  Buffer goes = arena.allocate(100, "goes");
  const Buffer stays = arena.allocate(64, "stays");
  goes.release();
  EXPECT_EQ(timeline.record().in_use, (std::vector<std::int64_t>{0, 128, 192, 64}));
  EXPECT_EQ(timeline.record().phases.at(0).moment.chunk, 2);
  timeline.restart();
  const Buffer outside = arena.allocate(1, "of no step");
  const StepRecord record = timeline.record();
  EXPECT_EQ(record.in_use, (std::vector<std::int64_t>{64, 128}));
  EXPECT_EQ(record.seconds.size(), 2u);
  EXPECT_TRUE(record.phases.empty());
  ASSERT_EQ(record.buffers.size(), 2u);
  EXPECT_EQ(record.buffers[0].loan.name, std::string("stays"));
}

TEST(StepTimeline, HoldsMoreThanItsSpaceWasMadeFor) {
  Arena arena(Device::cpu(), 1 << 20);
  StepTimeline timeline(arena, 2);
  for (int i = 0; i < 100; ++i) arena.allocate(1, "some");
  EXPECT_EQ(timeline.record().in_use.size(), 201u);
  EXPECT_EQ(timeline.record().buffers.size(), 100u);
}

TEST(StepTimeline, MustBeThereBeforeAnythingIsLent) {
  Arena arena(Device::cpu(), 1 << 20);
  const Buffer early = arena.allocate(100, "early");
  EXPECT_EQ(message_of<InvalidArgument>([&] { StepTimeline timeline(arena); }),
            "arena: has already lent 128 B; allowed: a timeline made before the first allocation");
}

TEST(StepTimeline, LetsTheArenaGoOnWithoutIt) {
  Arena arena(Device::cpu(), 1 << 20);
  Buffer outlives;
  {
    StepTimeline timeline(arena);
    outlives = arena.allocate(100, "outlives");
  }
  outlives.release();
  EXPECT_EQ(arena.in_use_bytes(), 0);
}

}  // namespace
}  // namespace evenkeel::testing
