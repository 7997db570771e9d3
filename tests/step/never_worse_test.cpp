// No decision is predicted to take longer than the reference decision for the same step, made by an earlier
// version.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>

#include "evenkeel/budget/buffer_bytes.h"
#include "evenkeel/step/decide.h"
#include "evenkeel/step/internal/one_plan.h"
#include "evenkeel/step/internal/plan_per_chunk.h"
#include "tests/step/step_case.h"

namespace evenkeel::testing {
namespace {

// A plan and chunks, parsed from the reference files.
struct Recorded {
  std::string plan;
  std::vector<Chunk> chunks;
  std::vector<bool> plain_ep;  // by chunk: true if nothing moved in it

  explicit Recorded(const std::string& text, bool has_plan) {
    std::istringstream words(text);
    if (has_plan) words >> plan;
    for (std::string word; words >> word;) add(word);
  }

 private:
  // "192kx3" means three kept chunks of 192 tokens per rank.
  void add(const std::string& word) {
    std::size_t behind = 0;
    const std::int64_t length = std::stoll(word, &behind);
    const bool kept = word.find('k') != std::string::npos;
    const std::size_t times = word.find('x');
    const int count = times == std::string::npos ? 1 : std::stoi(word.substr(times + 1));
    for (int i = 0; i < count; ++i) {
      const std::int64_t begin = chunks.empty() ? 0 : chunks.back().end;
      chunks.push_back({begin, begin + length, kept});
      plain_ep.push_back(word.find('p') != std::string::npos);
    }
  }
};

// Calls use(seed, rest of the line) for each line.
template <class Use>
int for_each_line(const std::string& name, const Use& use) {
  std::ifstream file(EVENKEEL_SOURCE_DIR "/tests/step/" + name);
  int lines = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line.front() == '#') continue;
    std::size_t behind = 0;
    const auto seed = static_cast<unsigned>(std::stoul(line, &behind));
    use(seed, line.substr(behind));
    ++lines;
  }
  return lines;
}

constexpr PlannerOptions kLevel{PlannerOptions::Kind::level, 1000, 16, 1000};

// One pass of a step, in a layer whose buffers are known.
struct Pass {
  Pass(const StepCase& of, const RoutedStep& tokens, StepPass which)
      : problem(of),
        step(tokens),
        counts(tokens.counts()),
        memories(of.memories(tokens)),
        table(block_table(step, kCaseBlocks, numbers)),
        bytes(of.shape, of.options.recompute),
        options(of.decision_options()),
        in{.pass = which,
           .table = table,
           .counts = counts,
           .homes = step.placement,
           .memories = memories,
           .top_k = step.k} {}

  StepDecision decided(const StepPlan& held) {
    StepDecision decision;
    decision.plan = held;
    decide(problem, options, in.pass, step, PlannerOptions::Kind::level, decision);
    return decision;
  }
  // Seconds of the recorded decision, predicted in the same way as when candidates are compared.
  double predicted(const Recorded& recorded, const StepPlan& plan) {
    internal::OnePlan candidates(bytes, options, step.ranks());
    candidates.read(in);
    double backward_seconds = std::numeric_limits<double>::infinity();
    internal::StepCandidate candidate{recorded.chunks};
    const StepPlan plain = plain_plan(step);
    for (const bool is_plain : {true, false}) {
      candidates.follow(is_plain ? plain : plan, step.placement);
      backward_seconds = std::min(backward_seconds, candidates.estimate_backward_seconds());
      if (is_plain == (recorded.plan == "plain")) candidates.time(in.pass, candidate);
    }
    return candidate.seconds_with(backward_seconds);
  }

  const StepCase& problem;
  const RoutedStep step;
  const Counts counts;
  const std::vector<RankMemory> memories;
  std::vector<std::int32_t> numbers;
  const BlockTable table;
  BufferBytes bytes;
  const DecisionOptions options;
  const StepInputs in;
};

TEST(Decide, IsNeverPredictedToTakeLongerThanBefore) {
  int faster = 0;
  const int lines = for_each_line("decided_by_buffers.txt", [&](unsigned seed, const std::string& text) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    const StepCase problem(seed);
    const std::size_t bar = text.find('|');
    const Recorded forward(text.substr(0, bar), true);
    StepPlan plan;
    make_planner(kLevel)->plan(problem.step.counts(), problem.step.placement, plan);
    Pass pass(problem, problem.step, StepPass::forward);
    const double before = pass.predicted(forward, plan);
    const double now = pass.decided({}).seconds;
    EXPECT_LE(now, before * (1 + 1e-12));
    faster += now < before * (1 - 1e-9) ? 1 : 0;
    if (bar == std::string::npos) return;
    const auto rest = std::ranges::find(forward.chunks, false, &Chunk::kept);
    Pass back(problem, problem.without(rest->begin), StepPass::backward);
    if (forward.plan == "plain") plan = plain_plan(problem.step);
    EXPECT_LE(back.decided(plan).seconds,
              back.predicted(Recorded(text.substr(bar + 1), true), plan) * (1 + 1e-12));
  });
  EXPECT_EQ(lines, 2500);
  EXPECT_GT(faster, 100);
}

// One step of a layer whose ranks are processes.
struct Runs {
  explicit Runs(const StepCase& of)
      : problem(of),
        counts(of.step.counts()),
        table(block_table(of.step, kCaseBlocks, numbers)),
        bytes(of.phases),
        options{of.options, step_expert(of.shape), 1, true, true},
        planner(make_planner(kLevel)),
        memories(of.memories(of.step)),
        in{.table = table,
           .counts = counts,
           .homes = of.step.placement,
           .memories = memories,
           .top_k = of.step.k,
           .planner = planner.get()} {
    for (RankMemory& memory : memories) memory.free_bytes = of.phase_budget;
  }

  StepDecision decided() {
    StepDecision decision;
    StepDecider(bytes, options, problem.step.ranks()).decide(in, decision);
    return decision;
  }
  // Seconds of the recorded decision. Its chunks need not consist of whole blocks.
  double predicted(const Recorded& recorded) {
    double seconds = 0;
    for (std::size_t i = 0; i < recorded.chunks.size(); ++i) {
      const Chunk& chunk = recorded.chunks[i];
      const RoutedStep part = problem.part(chunk.begin, chunk.end);
      std::vector<std::int32_t> of_part;
      const BlockTable run = block_table(part, 1, of_part);
      std::vector<RankMemory> tokens = memories;
      for (RankMemory& memory : tokens) memory.tokens = chunk.end - chunk.begin;
      StepInputs of = {.table = run,
                       .counts = counts,
                       .homes = problem.step.placement,
                       .memories = tokens,
                       .top_k = problem.step.k,
                       .planner = planner.get()};
      internal::PlanPerChunk plans(bytes, options, problem.step.ranks());
      seconds +=
          (recorded.plain_ep[i] ? plans.stay(of, 0, 1) : plans.plan(of, 0, 1, recorded.chunks.size() == 1))
              .seconds;
    }
    return seconds;
  }

  const StepCase& problem;
  const Counts counts;
  std::vector<std::int32_t> numbers;
  const BlockTable table;
  MeasuredBytes bytes;
  const DecisionOptions options;
  const std::unique_ptr<Planner> planner;
  std::vector<RankMemory> memories;
  const StepInputs in;
};

TEST(Decide, IsNeverPredictedToTakeLongerBetweenProcessesThanBefore) {
  int faster = 0, finer = 0;
  const int lines = for_each_line("decided_by_phases.txt", [&](unsigned seed, const std::string& text) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    const StepCase problem(seed);
    Runs runs(problem);
    const StepDecision decision = runs.decided();
    if (!decision.refine.empty()) {  // the decision asks for finer block counts
      ++finer;
      return;
    }
    const double before = runs.predicted(Recorded(text, false));
    EXPECT_LE(decision.seconds, before * (1 + 1e-12));
    faster += decision.seconds < before * (1 - 1e-9) ? 1 : 0;
  });
  EXPECT_EQ(lines, 2500);
  EXPECT_GT(faster, 100);
  EXPECT_LE(finer, 200);
}

}  // namespace
}  // namespace evenkeel::testing
