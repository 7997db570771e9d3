// A GPU layer with several steps in flight, and steps that fail before their end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "evenkeel/base/error.h"
#include "evenkeel/comm/faulty.h"
#include "evenkeel/comm/thread/run_ranks.h"
#include "tests/layer/cuda/rank_on_gpu.h"
#include "tests/support/gpu.h"

namespace evenkeel::testing {
namespace {

using ::testing::HasSubstr;

constexpr double kDeadline = 0.5;

const ExpertShape kExpert{64, 48, Activation::swiglu, false, DataType::bf16};

CudaRunOptions lending() {
  return {.planner = {PlannerOptions::Kind::level, 1000, 4, 0}, .backward = true};
}

class CudaSteps : public ::testing::Test {
 protected:
  void SetUp() override { SKIP_WITHOUT_GPU(); }
};

// Three cases with different choices: forward one after the other, backward in a different order.
TEST_F(CudaSteps, GoBackwardInAnyOrder) {
  const MoeCase first({{16, 3, kExpert}, {150, 90, 0, 200}, 1.0, 0.02}, 1);
  std::vector<MoeCase> cases(3, first);
  for (std::uint64_t seed : {1, 2}) {
    CaseShape hotter = first.shape();
    hotter.skew += 2.0 * static_cast<double>(seed);
    const MoeCase other(hotter, seed);
    const auto ids = other.top_k().experts;
    cases[seed].ids().assign(ids.begin(), ids.end());
  }
  std::vector<MoeResult> results;
  for (const MoeCase& each : cases) results.push_back(empty_result(each));
  CudaRunOptions options = lending();
  options.states_in_flight = 3;
  run_ranks(first.ranks(), [&](Communicator& comm) {
    LayerOnGpu layer(first, comm, options);
    std::vector<StepOnGpu> steps;
    std::vector<ForwardState> states;
    for (const MoeCase& each : cases) steps.emplace_back(each, comm.rank());
    for (StepOnGpu& step : steps) states.push_back(step.forward(layer));
    EXPECT_THROW(static_cast<void>(steps[0].forward(layer)), InvalidArgument);
    for (const std::size_t i : {1U, 2U, 0U}) steps[i].backward(layer, std::move(states[i]));
    layer.stream().synchronize();
    for (std::size_t i = 0; i < steps.size(); ++i) steps[i].read(results[i], true);
  });
  for (std::size_t i = 0; i < cases.size(); ++i)
    expect_dense_tokens(Dense(cases[i]), results[i], "case " + std::to_string(i));
}

struct Ending {
  int peer = -2;  // -2: no CommError was thrown on the rank
  std::string what;
};

// Runs steps until a fault in rank 2's communication ends them. Returns each rank's CommError.
std::vector<Ending> endings_of(const Fault& fault, std::string& thrown) {
  const MoeCase problem({{8, 2, kExpert}, {30, 20, 40, 10}, 2.0, 0.0}, 4);
  std::vector<Ending> endings(4);
  const auto body = [&](Communicator& comm) {
    Fault mine = fault;
    if (comm.rank() != RankId(2)) mine.operation = "never";
    FaultyCommunicator faulty(comm, mine);
    try {
      LayerOnGpu layer(problem, faulty, lending());
      StepOnGpu step(problem, comm.rank());
      for (int i = 0; i < 1000; ++i) step.backward(layer, step.forward(layer));
    } catch (const CommError& error) {
      endings[comm.rank().offset()] = {error.peer(), error.what()};
      throw;
    }
  };
  try {
    run_ranks(problem.ranks(), body, {.deadline_seconds = kDeadline});
  } catch (const std::exception& error) {
    thrown = error.what();
  }
  return endings;
}

// The barriers at which the fault occurs, counted from the layer's first. The last one is in the third step.
constexpr int kBarriers[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 15};

TEST_F(CudaSteps, EndOnEveryRankWithTheMessageOfTheOneThatThrew) {
  for (const int at : kBarriers) {
    std::string thrown;
    const auto endings = endings_of({.kind = Fault::Kind::fail, .operation = "barrier", .at = at}, thrown);
    const std::string message = "injected failure at barrier number " + std::to_string(at);
    EXPECT_EQ(thrown, message);
    for (const int rank : {0, 1, 3}) {
      EXPECT_EQ(endings[static_cast<std::size_t>(rank)].peer, 2);
      EXPECT_THAT(endings[static_cast<std::size_t>(rank)].what, HasSubstr(message));
    }
  }
}

TEST_F(CudaSteps, EndOnEveryRankWithinTheDeadlineWhenOneFallsSilent) {
  for (const int at : kBarriers) {
    std::string thrown;
    const auto endings = endings_of({.kind = Fault::Kind::silence, .operation = "barrier", .at = at}, thrown);
    EXPECT_THAT(thrown, HasSubstr("rank 2 did not answer in "));
    for (const Ending& ending : endings) EXPECT_EQ(ending.peer, 2) << ending.what;
  }
}

}  // namespace
}  // namespace evenkeel::testing
