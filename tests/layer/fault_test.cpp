// If a rank fails or falls silent anywhere in a step, the step soon ends on every rank with an error that
// names that rank, and no arena still holds buffers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>

#include "evenkeel/base/error.h"
#include "evenkeel/comm/faulty.h"
#include "evenkeel/comm/thread/run_ranks.h"
#include "evenkeel/compute/cpu/expert_ffn.h"
#include "tests/layer/rank_layer.h"
#include "tests/layer/wrapped_experts.h"
#include "tests/routing/message.h"

namespace evenkeel::testing {
namespace {

using ::testing::HasSubstr;

constexpr int kRanks = 4;
// The seconds that count as "soon" on a shared machine.
constexpr double kSoon = 5;
// Deadlines: short if a rank falls silent; far beyond kSoon if a rank throws, because its error must be
// reported without waiting for the deadline.
constexpr double kDeadline = 0.4;
constexpr double kFarDeadline = 6 * kSoon;

const ExpertShape kExpert{16, 8, Activation::swiglu, false, DataType::f32};

// A case with skewed routing, so that every planner except ep lends weights.
const MoeCase& problem() {
  static const MoeCase made({{8, 2, kExpert}, {30, 20, 40, 10}, 2.0, 0.0}, 4);
  return made;
}

MoeOptions lending(int chunks) {
  MoeOptions options;
  options.planner = {PlannerOptions::Kind::level, 1000, 1, 0};
  if (chunks == 1) return options;
  options.cpu().memory.recompute = Recompute::chunk;
  options.cpu().memory.rule = {ChunkRule::Kind::equal, chunks, {}};
  options.cpu().memory.keep_plan = true;
  return options;
}

struct Ending {
  int peer = -2;  // -2: no CommError was thrown on the rank
  std::string what;
  std::string later;  // the error message of a later call
  std::int64_t in_use_bytes = -1;
};

struct Outcome {
  std::vector<Ending> endings{kRanks};
  std::string thrown;
  double seconds = 0;
};

// Runs steps until an error ends them. `options_of` gives the options of a rank's layer.
template <class OptionsOf>
Outcome outcome_of(const Fault& fault, int faulty_rank, const OptionsOf& options_of) {
  static const auto kept = make_cpu_expert_ffn(kExpert, true);
  Outcome outcome;
  const auto body = [&](Communicator& comm) {
    Fault mine = fault;
    if (comm.rank() != RankId(faulty_rank)) mine.operation = "never";
    FaultyCommunicator faulty(comm, mine);
    Arena arena(Device::cpu());
    Ending& ending = outcome.endings[comm.rank().offset()];
    std::optional<RankLayer> rank;
    try {
      rank.emplace(problem(), faulty, arena, options_of(comm.rank()));
      for (int step = 0; step < 1000; ++step) rank->step();
    } catch (const std::exception& error) {
      const auto* const of_comm = dynamic_cast<const CommError*>(&error);
      if (of_comm != nullptr) ending.peer = of_comm->peer();
      ending.what = error.what();
      if (rank) ending.later = message_of<CommError>([&] { rank->forward(); });
      rank.reset();
      ending.in_use_bytes = arena.in_use_bytes();
      throw;
    }
  };
  const double deadline = fault.kind == Fault::Kind::silence ? kDeadline : kFarDeadline;
  const auto start = std::chrono::steady_clock::now();
  try {
    run_ranks(kRanks, body, {.deadline_seconds = deadline});
  } catch (const std::exception& error) {
    outcome.thrown = error.what();
  }
  outcome.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return outcome;
}

// Injects the fault into one rank's communication.
Outcome outcome_of(const Fault& fault, int faulty_rank, int chunks) {
  return outcome_of(fault, faulty_rank, [&](RankId) { return lending(chunks); });
}

// Injects the fault into one rank's computation: `what` throws at its `at`th call. `what` is a function of
// the experts or "on_phase".
Outcome outcome_where_computing_fails(std::string_view what, int at, RankId failing, int chunks) {
  return outcome_of({.operation = "never"}, -1, [&](RankId rank) {
    MoeOptions options = lending(chunks);
    if (rank != failing) return options;
    const auto left = std::make_shared<int>(at);
    const auto fail = [=](std::string_view called) {
      if (called == what && --*left == 0) throw std::runtime_error("no more of " + std::string(what));
    };
    const auto around = [=](const char* called, const auto& call) {
      fail(called);
      call();
    };
    options.cpu().experts = std::make_shared<WrappedExperts<decltype(around)>>(kExpert, around);
    options.cpu().on_phase = [=](const TimedPhase&) { fail("on_phase"); };
    return options;
  });
}

struct Place {
  const char* operation;
  int at;
  int chunks = 1;
};

std::ostream& operator<<(std::ostream& out, const Place& place) {
  return out << place.operation << " number " << place.at << ", " << place.chunks << " chunks";
}

// "weight transfer" first receives weights, then sends: operations 1 and 2 in forward, 3 and 4 in backward.
constexpr Place kPlaces[] = {{"agreement", 1},
                             {"split", 1},
                             {"counts", 1},
                             {"counts", 2},
                             {"dispatch indices", 1},
                             {"dispatch", 1},
                             {"weight transfer", 1},
                             {"weight transfer", 2},
                             {"weight transfer", 3},
                             {"weight transfer", 4},
                             {"combine", 1},
                             {"dispatch router weights", 1},
                             {"dispatch gradients", 1},
                             {"combine gradients", 1},
                             {"return gradients", 1},
                             {"counts of a chunk", 3, 4},
                             {"dispatch indices", 3, 4},
                             {"dispatch", 4, 4},
                             {"combine", 2, 4},
                             {"combine", 5, 4},
                             {"dispatch gradients", 3, 4},
                             {"combine gradients", 1, 4},
                             {"combine gradients", 6, 4}};

// Every rank must end soon: the failing rank with its own error, the others with an error that names the
// failing rank and contains that rank's message. Later calls of a layer must report the same message.
void expect_all_ranks_failed(const Outcome& outcome, const std::string& message, int failing) {
  EXPECT_EQ(outcome.thrown, message);
  EXPECT_LT(outcome.seconds, kSoon);
  for (int rank = 0; rank < kRanks; ++rank) {
    const Ending& ending = outcome.endings[static_cast<std::size_t>(rank)];
    EXPECT_EQ(ending.in_use_bytes, 0) << "rank " << rank;
    EXPECT_TRUE(ending.later.empty() || ending.later.find(message) != std::string::npos) << ending.later;
    if (rank == failing) {
      EXPECT_EQ(ending.what, message);
    } else {
      EXPECT_EQ(ending.peer, failing) << ending.what;
      EXPECT_THAT(ending.what, HasSubstr(message));
    }
  }
}

class ALayer : public ::testing::TestWithParam<Place> {};

TEST_P(ALayer, EndsOnEveryRankWithTheMessageOfTheOneThatThrew) {
  for (int failing = 0; failing < kRanks; ++failing) {
    const Outcome outcome =
        outcome_of({.kind = Fault::Kind::fail, .operation = GetParam().operation, .at = GetParam().at},
                   failing, GetParam().chunks);
    expect_all_ranks_failed(outcome,
                            std::string("injected failure at ") + GetParam().operation + " number " +
                                std::to_string(GetParam().at),
                            failing);
  }
}

TEST_P(ALayer, EndsOnEveryRankWithinTheDeadlineWhenOneFallsSilent) {
  const int silent = 2;
  const Outcome outcome =
      outcome_of({.kind = Fault::Kind::silence, .operation = GetParam().operation, .at = GetParam().at},
                 silent, GetParam().chunks);
  EXPECT_THAT(outcome.thrown, HasSubstr("rank 2 did not answer in "));
  EXPECT_GE(outcome.seconds, kDeadline);
  EXPECT_LT(outcome.seconds, kDeadline + kSoon);
  for (const Ending& ending : outcome.endings) {
    EXPECT_EQ(ending.peer, silent) << ending.what;
    EXPECT_EQ(ending.what, outcome.thrown);
    EXPECT_EQ(ending.in_use_bytes, 0);
  }
}

TEST_P(ALayer, OutlastsADelayShorterThanTheDeadline) {
  std::vector<Tensor> outputs(kRanks), expected(kRanks);
  const auto steps = [&](Communicator& comm, std::vector<Tensor>& to) {
    Arena arena(Device::cpu());
    RankLayer rank(problem(), comm, arena, lending(GetParam().chunks));
    for (int step = 0; step < 2; ++step) rank.step();
    to[comm.rank().offset()] = rank.grad_hidden();
  };
  run_ranks(kRanks, [&](Communicator& comm) { steps(comm, expected); });
  run_ranks(kRanks, [&](Communicator& comm) {
    FaultyCommunicator faulty(comm, {.kind = Fault::Kind::delay,
                                     .operation = comm.rank() == RankId(1) ? GetParam().operation : "never",
                                     .at = GetParam().at,
                                     .seconds = 0.02});
    steps(faulty, outputs);
  });
  EXPECT_TRUE(outputs == expected);
}

INSTANTIATE_TEST_SUITE_P(Faults, ALayer, ::testing::ValuesIn(kPlaces));

// Weights are prepared when a layer is constructed.
constexpr Place kComputing[] = {
    {"prepare", 1},    {"prepare", 3},     {"forward", 1},     {"forward", 4},     {"backward", 1},
    {"backward", 3},   {"on_phase", 1},    {"on_phase", 7},    {"forward", 1, 4},  {"forward", 3, 4},
    {"forward", 6, 4}, {"backward", 1, 4}, {"backward", 4, 4}, {"backward", 7, 4}, {"on_phase", 20, 4}};

class ALayerThatCannotCompute : public ::testing::TestWithParam<Place> {};

TEST_P(ALayerThatCannotCompute, EndsOnEveryRankWithTheMessageOfTheOneThatThrew) {
  const auto [what, at, chunks] = GetParam();
  for (int failing = 0; failing < kRanks; ++failing)
    expect_all_ranks_failed(outcome_where_computing_fails(what, at, RankId(failing), chunks),
                            std::string("no more of ") + what, failing);
}

INSTANTIATE_TEST_SUITE_P(Faults, ALayerThatCannotCompute, ::testing::ValuesIn(kComputing));

}  // namespace
}  // namespace evenkeel::testing
