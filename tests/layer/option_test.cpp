// The arguments that a layer refuses, and the error messages. A layer's states may be consumed in any order
// or dropped.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "evenkeel/base/error.h"
#include "evenkeel/comm/thread/run_ranks.h"
#include "tests/layer/rank_layer.h"
#include "tests/layer/same_gradients.h"

namespace evenkeel::testing {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;

const ExpertShape kSmallExpert{16, 8, Activation::swiglu, false, DataType::f32};
const MoeShape kShape{6, 2, kSmallExpert};

const MoeCase& small_problem() {
  static const MoeCase made({kShape, {12, 9, 10}, 1.0, 0.1}, 1);
  return made;
}

// The error thrown on each rank, as "type: message".
std::vector<std::string> errors_of(const std::function<void(Communicator&)>& body) {
  std::vector<std::string> errors(3);
  const auto noting = [&](Communicator& comm) {
    try {
      body(comm);
    } catch (const Error& error) {
      errors[comm.rank().offset()] = error.type() + ": " + error.what();
      throw;
    }
  };
  EXPECT_THROW(run_ranks(3, noting, {.deadline_seconds = 10}), Error);
  return errors;
}

using Homes = std::vector<std::vector<int>>;
using Change = std::function<void(MoeShape&, Homes&, MoeOptions&)>;

// The errors of constructing a layer with `change` made on one rank, or on all.
std::vector<std::string> construction_errors(const Change& change, int only_rank = -1) {
  return errors_of([&](Communicator& comm) {
    MoeShape shape = kShape;
    Homes homes = {{0}, {0}, {1}, {1}, {2}, {2}};
    MoeOptions options;
    options.planner.kind = PlannerOptions::Kind::level;
    if (only_rank < 0 || comm.rank() == RankId(only_rank)) change(shape, homes, options);
    Arena arena(Device::cpu());
    MoeLayer(comm, arena, shape, LayerPlacement(homes, comm.size()), options);
  });
}

// All ranks find the same mismatch, but the first rank to throw may end the others before they throw it.
auto is_mismatch(const char* what, int rank) {
  const std::string why =
      std::string(what) + ": rank " + std::to_string(rank) + " has another value than rank 0";
  return AllOf(Contains(HasSubstr("InvalidArgument: " + why)), Each(HasSubstr(why)));
}

TEST(MoeLayerConstruction, NamesTheRankWhoseShapePlacementOrOptionsDiffer) {
  const auto option = [](auto make) {
    return Change([=](MoeShape&, Homes&, MoeOptions& options) { make(options); });
  };
  const std::pair<const char*, Change> changes[] = {
      {"shape.expert.hidden", [](MoeShape& shape, Homes&, MoeOptions&) { shape.expert.hidden = 32; }},
      {"shape.top_k", [](MoeShape& shape, Homes&, MoeOptions&) { shape.top_k = 3; }},
      {"placement",
       [](MoeShape&, Homes& homes, MoeOptions&) {
         homes[4] = {2, 0};
       }},
      {"options.planner", option([](MoeOptions& o) { o.planner.kind = PlannerOptions::Kind::ep; })},
      {"options.planner", option([](MoeOptions& o) { o.planner.capacity_factor_thousandths = 1100; })},
      {"options.planner", option([](MoeOptions& o) { o.planner.min_segment = 1; })},
      {"options.planner", option([](MoeOptions& o) { o.planner.imbalance_threshold_thousandths = 0; })},
      {"options.planner", option([](MoeOptions& o) {
         o.planner.links = {Topology::uniform(3, 1, {2}, {1}), {}, {}};
       })},
      {"options.max_tokens", option([](MoeOptions& o) { o.max_tokens = 17; })},
      {"options.with_backward", option([](MoeOptions& o) { o.with_backward = false; })},
      {"options.states_in_flight", option([](MoeOptions& o) { o.states_in_flight = 2; })},
      {"options.memory", option([](MoeOptions& o) { o.cpu().memory.recompute = Recompute::chunk; })},
      {"options.memory", option([](MoeOptions& o) {
         o.cpu().memory.rule.bins.assign({1, 3});
       })},
      {"options.memory", option([](MoeOptions& o) { o.cpu().memory.cost.chunk_seconds = 0; })},
      {"options.node_of_rank", option([](MoeOptions& o) {
         o.cpu().node_of_rank = {0, 0, 1};
       })}};
  for (const auto& [what, change] : changes)
    for (int rank : {1, 2}) EXPECT_THAT(construction_errors(change, rank), is_mismatch(what, rank));
}

TEST(MoeLayerConstruction, NamesTheRankThatAloneHasABudget) {
  EXPECT_THAT(errors_of([](Communicator& comm) {
                Arena arena(Device::cpu(), comm.rank() == RankId(1) ? 1 << 20 : Arena::kNoBudget);
                MoeLayer(comm, arena, kShape, LayerPlacement::contiguous(6, 3));
              }),
              is_mismatch("whether the arena has a budget", 1));
}

TEST(MoeLayerConstruction, IsRefusedWhereStatesOfOtherLayersKeepWhatItNeeds) {
  EXPECT_THAT(errors_of([](Communicator& comm) {
                constexpr std::int64_t kBudget = 1 << 19;
                Arena arena(Device::cpu(), kBudget);
                RankLayer first(small_problem(), comm, arena);
                const ForwardState kept = first.forward();
                // The number of states for which the budget would have memory if the kept state did not
                // exist.
                constexpr std::int64_t kStateBytes = 12 * 2 * 8;  // tokens x choices x (id and weight)
                MoeOptions options;
                options.states_in_flight =
                    static_cast<int>((kBudget - first.layer().least_budget()) / kStateBytes);
                RankLayer second(small_problem(), comm, arena, options);
              }),
              Contains(HasSubstr("to make all layers before the first step")));
}

TEST(MoeLayerConstruction, RefusesWhatNoLayerCanBe) {
  const auto expect = [](const Change& change, const std::string& says, const std::string& allowed = "") {
    EXPECT_THAT(construction_errors(change), Each(AllOf(HasSubstr(says), HasSubstr(allowed))));
  };
  const auto expect_cost = [&](double Machine::*cost, double value, const char* says, const char* allowed) {
    expect([&](MoeShape&, Homes&, MoeOptions& o) { o.cpu().memory.cost.*cost = value; }, says, allowed);
  };
  for (double rate : {0.0, 1e300, std::numeric_limits<double>::infinity()})
    expect_cost(&Machine::link_bytes_per_second, rate, "cost: link_bytes_per_second is ",
                "; allowed: 1..1e+30");
  for (double overlap : {-0.1, 1.1, std::numeric_limits<double>::quiet_NaN()})
    expect_cost(&Machine::overlap, overlap, "cost: overlap is ", "; allowed: 0..1");
  for (double seconds : {-1.0, 1e300})
    expect_cost(&Machine::chunk_seconds, seconds, "cost: chunk_seconds is ", "; allowed: 0..1e+06");
  for (int states : {0, -1})
    expect([&](MoeShape&, Homes&, MoeOptions& o) { o.states_in_flight = states; },
           "states_in_flight: " + std::to_string(states));
  using Kind = ChunkRule::Kind;
  for (const ChunkRule& rule : {ChunkRule{Kind::equal, 0, {}}, ChunkRule{Kind::equal, -3, {}},
                                ChunkRule{Kind::mact, 1, {}}, ChunkRule{Kind::mact, 1, {4, 2}}})
    expect([&](MoeShape&, Homes&, MoeOptions& o) { o.cpu().memory.rule = rule; }, "rule: ");
  expect([](MoeShape&, Homes&, MoeOptions& o) { o.device = nullptr; }, "device: is null");
  expect([](MoeShape& shape, Homes&, MoeOptions&) { shape.num_experts = 7; }, "6 experts on 3 ranks");
  expect([](MoeShape& shape, Homes&, MoeOptions&) { shape.top_k = 0; }, "top_k");
  expect([](MoeShape&, Homes&, MoeOptions& o) { o.max_tokens = 0; }, "max_tokens");
  expect([](MoeShape&, Homes&, MoeOptions& o) { o.cpu().sum_in_nodes = true; },
         "sum_in_nodes: needs node_of_rank");
  expect([](MoeShape&, Homes&, MoeOptions& o) { o.cpu().node_of_rank = {0, 1}; }, "node_of_rank: ");
  expect([](MoeShape& shape, Homes&, MoeOptions&) { shape.expert.hidden = 0; }, "hidden");
}

// Rank 1 misuses its layer. Checks that the other ranks get its message, and returns rank 1's error.
std::string error_of_rank_1(const std::function<void(RankLayer&)>& wrong, MoeOptions options = {}) {
  const std::vector<std::string> errors = errors_of([&](Communicator& comm) {
    Arena arena(Device::cpu());
    RankLayer rank(small_problem(), comm, arena, options);
    rank.forward();
    if (comm.rank() == RankId(1)) wrong(rank);
    for (int step = 0; step < 100; ++step) rank.forward();
  });
  const std::string own = errors[1].substr(errors[1].find(": ") + 2);
  for (int other : {0, 2})
    EXPECT_THAT(errors[static_cast<std::size_t>(other)],
                AllOf(HasSubstr("CommError: rank 1 "), HasSubstr(own)));
  return errors[1];
}

// Expects rank 1's error to contain all of `says`.
void expect_refused(const std::function<void(RankLayer&)>& wrong, const std::vector<std::string>& says,
                    const MoeOptions& options = {}) {
  const std::string error = error_of_rank_1(wrong, options);
  for (const std::string& part : says) EXPECT_THAT(error, HasSubstr(part));
}

// Expects forward of rank 1's nine tokens to be refused after `change`.
void expect_forward_refused(const std::function<void(ConstRows&, TopK&, Rows&)>& change,
                            const std::vector<std::string>& says) {
  expect_refused(
      [&](RankLayer& rank) {
        ConstRows hidden = rank.hidden(9);
        TopK top_k = rank.top_k();
        Rows output = rank.output(9);
        change(hidden, top_k, output);
        rank.layer().forward(hidden, top_k, output);
      },
      says);
}

TEST(MoeLayerForward, NamesTheTokenWithABadExpertId) {
  for (std::int32_t bad : {6, -2, 1 << 30}) {
    const auto choices = small_problem().top_k_of(1).experts;
    std::vector<std::int32_t> ids(choices.begin(), choices.end());
    ids[11] = bad;
    expect_forward_refused([&](ConstRows&, TopK& top_k, Rows&) { top_k.experts = ids; },
                           {"InvalidArgument", "expert id " + std::to_string(bad) + " at token 5", "-1..5"});
  }
}

TEST(MoeLayerForward, RefusesMoreTokensThanItWasMadeForAndViewsOfAnotherShape) {
  const std::vector<std::int32_t> ids(26, 0);
  const std::vector<float> weights(26, 1.0f);
  Tensor rows(13 * 16, DataType::f32);
  expect_forward_refused(
      [&](ConstRows& hidden, TopK& top_k, Rows& output) {
        hidden = {rows.data(), 13, 16, DataType::f32};
        top_k = {13, 2, ids, weights};
        output = {rows.data(), 13, 16, DataType::f32};
      },
      {"13 tokens", "0..12"});
  expect_forward_refused([](ConstRows& hidden, TopK&, Rows&) { hidden.columns = 17; },
                         {"hidden", "[9, 17] f32", "[9, 16] f32"});
  expect_forward_refused([](ConstRows&, TopK&, Rows& output) { output.rows = 8; }, {"output", "[8, 16] f32"});
  expect_forward_refused([](ConstRows&, TopK&, Rows& output) { output.type = DataType::bf16; },
                         {"output", "bf16"});
  expect_forward_refused([](ConstRows&, TopK& top_k, Rows&) { top_k.weights = top_k.weights.first(3); },
                         {"top_k", "3 in weights"});
  expect_forward_refused([](ConstRows& hidden, TopK&, Rows&) { hidden.data = nullptr; }, {"hidden", "null"});
}

TEST(MoeLayerForward, RefusesToRunWithoutWeights) {
  EXPECT_THAT(
      errors_of([](Communicator& comm) {
        Arena arena(Device::cpu());
        MoeLayer layer(comm, arena, kShape, LayerPlacement::contiguous(6, 3));
        layer.forward({nullptr, 0, 16, DataType::f32}, {0, 2, {}, {}}, {nullptr, 0, 16, DataType::f32});
      }),
      Contains(HasSubstr("set_weights before forward")));
}

TEST(MoeLayerWeights, AreRefusedInAnotherNumberOrWithAMissingTensor) {
  expect_refused(
      [](RankLayer& rank) { rank.layer().set_weights(small_problem().weights_of(std::vector{ExpertId(2)})); },
      {"1 experts", "the 2 at home on this rank"});
  expect_refused(
      [](RankLayer& rank) {
        auto weights = small_problem().weights_of(rank.layer().natives());
        weights[1].down = nullptr;
        rank.layer().set_weights(weights);
      },
      {"weights of expert 3", "missing"});
}

TEST(MoeLayerBackward, RefusesAStateThatHoldsNoStep) {
  expect_refused([](RankLayer& rank) { rank.backward(ForwardState()); }, {"holds no forward step"});
}

TEST(MoeLayerBackward, RefusesAStateForTheSecondTime) {
  const std::vector<std::string> errors = errors_of([](Communicator& comm) {
    Arena arena(Device::cpu());
    RankLayer rank(small_problem(), comm, arena);
    ForwardState state = rank.forward();
    rank.backward(std::move(state));
    EXPECT_FALSE(state);  // NOLINT(bugprone-use-after-move): what is left is defined
    rank.backward(std::move(state));
  });
  EXPECT_THAT(errors, Contains(HasSubstr("holds no forward step")));
}

TEST(MoeLayerBackward, RefusesAStateOfAnotherLayer) {
  const std::vector<std::string> errors = errors_of([](Communicator& comm) {
    Arena arena(Device::cpu());
    RankLayer rank(small_problem(), comm, arena);
    RankLayer other(small_problem(), comm, arena);
    rank.backward(other.forward());
  });
  EXPECT_THAT(errors, Contains(HasSubstr("holds no forward step of this layer")));
}

TEST(MoeLayerBackward, RefusesGradientsOfAnotherShape) {
  const auto expect = [](const std::function<void(MoeGradients&, std::vector<ExpertGradients>&)>& change,
                         const std::vector<std::string>& says, std::int64_t tokens = 9) {
    expect_refused(
        [&](RankLayer& rank) {
          MoeGradients gradients = rank.gradients(9);
          std::vector<ExpertGradients> experts(gradients.experts.begin(), gradients.experts.end());
          change(gradients, experts);
          gradients.experts = experts;
          rank.layer().backward(rank.forward(), rank.grad_output(tokens), gradients);
        },
        says);
  };
  expect([](MoeGradients&, auto&) {}, {"grad_output"}, 8);
  expect([](MoeGradients&, auto& experts) { experts.resize(1); }, {"gradients: 1 experts; allowed: the 2"});
  expect([](MoeGradients& of, auto&) { of.router_weights = of.router_weights.first(5); },
         {"gradient of router weights", "5 numbers"});
  for (const auto tensor : {&ExpertGradients::gate_up, &ExpertGradients::down})
    expect([&](MoeGradients&, auto& experts) { experts[1].*tensor = nullptr; },
           {"gradients of expert 3: ", " is missing"});
}

TEST(MoeLayerBackward, IsRefusedByALayerThatWasMadeWithoutIt) {
  MoeOptions options;
  options.with_backward = false;
  expect_refused([](RankLayer& rank) { rank.backward(rank.forward()); },
                 {"made without backward", "with_backward"}, options);
}

// Several states in flight are consumed in a different order. Each must give the gradients of its own step
// alone.
TEST(ForwardStates, InFlightKeepTheirOwnStepWhateverTheOrderOfBackward) {
  std::vector<MoeCase> cases;
  for (std::uint64_t seed = 0; seed < 4; ++seed)
    cases.emplace_back(CaseShape{kShape, {12, 9, 10}, 2.0, 0.1}, seed);
  run_ranks(3, [&](Communicator& comm) {
    Arena arena(Device::cpu());
    MoeOptions options;
    options.planner = {PlannerOptions::Kind::level, 1000, 1, 0};
    RankLayer rank(small_problem(), comm, arena, options);
    const auto top_k = [&](std::size_t i) { return cases[i].top_k_of(comm.rank().value()); };
    std::vector<Tensor> alone(4);
    for (std::size_t i = 0; i < 4; ++i) {
      rank.step(top_k(i));
      alone[i] = rank.grad_hidden();
    }
    std::vector<ForwardState> states(4);
    for (std::size_t i = 0; i < 4; ++i) states[i] = rank.forward(top_k(i));
    for (std::size_t i : {2u, 0u, 3u, 1u}) {
      rank.backward(std::move(states[i]), top_k(i));
      EXPECT_TRUE(rank.grad_hidden() == alone[i]) << "state " << i;
    }
    EXPECT_EQ(arena.in_use_bytes(), 0);
  });
}

// The first state is consumed after the second was made. Free memory then is in two pieces, neither large
// enough for the whole third state, so that some of it is recomputed.
TEST(ForwardStates, ThatAreToBeKeptWholeRunWhereSpaceIsInPieces) {
  const std::vector<std::int32_t> ids(2 * 400, 0);  // all choose one expert
  const std::vector<float> weights(ids.size(), 0.5f);
  const MoeCase large({kShape, {400, 400, 400}, 0.0, 0.0}, 1);
  const auto top_k = [&](std::int64_t tokens) { return TopK{400, 2, ids, weights}.part(0, tokens); };
  run_ranks(3, [&](Communicator& comm) {
    MoeOptions options;
    options.planner.kind = PlannerOptions::Kind::ep;
    options.states_in_flight = 2;
    options.cpu().memory.recompute = Recompute::none;
    Arena measuring(Device::cpu(), std::int64_t{1} << 30);
    RankLayer free(large, comm, measuring, options);
    free.step(top_k(400));
    const std::int64_t least = free.layer().least_budget();
    Arena arena(Device::cpu(), least);
    RankLayer rank(large, comm, arena, options);
    ForwardState first = rank.forward(top_k(250));
    ForwardState second = rank.forward(top_k(400));
    first = {};
    ForwardState third = rank.forward(top_k(400));
    EXPECT_TRUE(second.chunks().front().kept);
    const Chunk& last = third.chunks().back();
    EXPECT_FALSE(last.kept);
    for (ForwardState* state : {&second, &third}) {
      rank.backward(std::move(*state), top_k(400));
      expect_close(rank.grad_hidden(), free.grad_hidden());
    }
    EXPECT_EQ(rank.output(), free.output());
    EXPECT_LE(arena.peak_bytes(), least);
  });
}

}  // namespace
}  // namespace evenkeel::testing
