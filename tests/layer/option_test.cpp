// The arguments that a layer refuses, with which words, and that its states may be used in any order or not
// at all.
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

// The message that each rank threw, by rank, after its type's name.
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

std::vector<std::string> construction_errors(
    const std::function<void(int rank, MoeShape&, std::vector<std::vector<int>>&, MoeOptions&)>& change) {
  return errors_of([&](Communicator& comm) {
    MoeShape shape = kShape;
    std::vector<std::vector<int>> homes = {{0}, {0}, {1}, {1}, {2}, {2}};
    MoeOptions options;
    change(comm.rank().value(), shape, homes, options);
    Arena arena(Device::cpu());
    MoeLayer(comm, arena, shape, LayerPlacement(homes, comm.size()), options);
  });
}

// All ranks see the same, but the first to throw may end the others before they do.
auto is_mismatch(const char* what, int rank) {
  const std::string why = std::string(what) + ": rank " + std::to_string(rank) + " has another than rank 0";
  return AllOf(Contains(HasSubstr("InvalidArgument: " + why)), Each(HasSubstr(why)));
}

TEST(MoeLayerConstruction, NamesTheRankWhoseShapeDiffers) {
  EXPECT_THAT(construction_errors([](int rank, MoeShape& shape, auto&, auto&) {
                if (rank == 2) shape.expert.hidden = 32;
              }),
              is_mismatch("shape.expert.hidden", 2));
  EXPECT_THAT(construction_errors([](int rank, MoeShape& shape, auto&, auto&) {
                if (rank == 1) shape.top_k = 3;
              }),
              is_mismatch("shape.top_k", 1));
}

TEST(MoeLayerConstruction, NamesTheRankWhosePlacementDiffers) {
  EXPECT_THAT(construction_errors([](int rank, auto&, auto& homes, auto&) {
                if (rank == 1) homes[4] = {2, 0};
              }),
              is_mismatch("placement", 1));
}

TEST(MoeLayerConstruction, NamesTheRankWhoseOptionsDiffer) {
  struct Change {
    const char* what;
    std::function<void(MoeOptions&)> make;
  };
  const Change changes[] = {
      {"options.planner", [](MoeOptions& o) { o.planner.kind = PlannerOptions::Kind::ep; }},
      {"options.planner", [](MoeOptions& o) { o.planner.capacity_factor_thousandths = 1100; }},
      {"options.planner", [](MoeOptions& o) { o.planner.min_segment = 1; }},
      {"options.planner", [](MoeOptions& o) { o.planner.imbalance_threshold_thousandths = 0; }},
      {"options.max_tokens", [](MoeOptions& o) { o.max_tokens = 17; }},
      {"options.with_backward", [](MoeOptions& o) { o.with_backward = false; }},
      {"options.states_in_flight", [](MoeOptions& o) { o.states_in_flight = 2; }},
      {"options.memory", [](MoeOptions& o) { o.cpu().memory.recompute = Recompute::chunk; }},
      {"options.memory",
       [](MoeOptions& o) {
         o.cpu().memory.rule.bins = {1, 3};
       }},
      {"options.memory", [](MoeOptions& o) { o.cpu().memory.cost.chunk_seconds = 0; }}};
  for (const Change& change : changes)
    EXPECT_THAT(construction_errors([&](int rank, auto&, auto&, MoeOptions& options) {
                  if (rank == 2) change.make(options);
                }),
                is_mismatch(change.what, 2));
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
                // As many states as the budget has memory for, but for what is kept.
                constexpr std::int64_t kStateBytes = 12 * 2 * 8;  // tokens, choices, an id and a weight
                MoeOptions options;
                options.states_in_flight =
                    static_cast<int>((kBudget - first.layer().least_budget()) / kStateBytes);
                RankLayer second(small_problem(), comm, arena, options);
              }),
              Contains(HasSubstr("all layers made before the first step")));
}

TEST(MoeLayerConstruction, RefusesWhatNoLayerCanBe) {
  for (int states : {0, -1})
    EXPECT_THAT(construction_errors([&](int, auto&, auto&, MoeOptions& o) { o.states_in_flight = states; }),
                Each(HasSubstr("states_in_flight: " + std::to_string(states))));
  for (double rate : {0.0, 1e300, std::numeric_limits<double>::infinity()})
    EXPECT_THAT(construction_errors([&](int, auto&, auto&, MoeOptions& o) {
                  o.cpu().memory.cost.link_bytes_per_second = rate;
                }),
                Each(AllOf(HasSubstr("cost: link_bytes_per_second is "), HasSubstr("; allowed: 1..1e+30"))));
  for (double overlap : {-0.1, 1.1, std::numeric_limits<double>::quiet_NaN()})
    EXPECT_THAT(
        construction_errors([&](int, auto&, auto&, MoeOptions& o) { o.cpu().memory.cost.overlap = overlap; }),
        Each(AllOf(HasSubstr("cost: overlap is "), HasSubstr("; allowed: 0..1"))));
  for (double seconds : {-1.0, 1e300})
    EXPECT_THAT(construction_errors(
                    [&](int, auto&, auto&, MoeOptions& o) { o.cpu().memory.cost.chunk_seconds = seconds; }),
                Each(AllOf(HasSubstr("cost: chunk_seconds is "), HasSubstr("; allowed: 0..1e+06"))));
  using Kind = ChunkRule::Kind;
  for (const ChunkRule& rule : {ChunkRule{Kind::equal, 0, {}}, ChunkRule{Kind::equal, -3, {}},
                                ChunkRule{Kind::mact, 1, {}}, ChunkRule{Kind::mact, 1, {4, 2}}})
    EXPECT_THAT(construction_errors([&](int, auto&, auto&, MoeOptions& o) { o.cpu().memory.rule = rule; }),
                Each(HasSubstr("rule: ")));
  EXPECT_THAT(construction_errors([](int, auto&, auto&, MoeOptions& o) { o.device = nullptr; }),
              Each(HasSubstr("device: is null")));
  EXPECT_THAT(construction_errors([](int, MoeShape& shape, auto&, auto&) { shape.num_experts = 7; }),
              Each(HasSubstr("6 experts on 3 ranks")));
  EXPECT_THAT(construction_errors([](int, MoeShape& shape, auto&, auto&) { shape.top_k = 0; }),
              Each(HasSubstr("top_k")));
  EXPECT_THAT(construction_errors([](int, auto&, auto&, MoeOptions& o) { o.max_tokens = 0; }),
              Each(HasSubstr("max_tokens")));
  EXPECT_THAT(construction_errors([](int, MoeShape& shape, auto&, auto&) { shape.expert.hidden = 0; }),
              Each(HasSubstr("hidden")));
}

// One rank does something wrong with its layer; its own error, and that the others hear of it, is returned.
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

TEST(MoeLayerForward, NamesTheTokenWithABadExpertId) {
  for (std::int32_t bad : {6, -2, 1 << 30})
    EXPECT_THAT(error_of_rank_1([&](RankLayer& rank) {
                  TopK top_k = rank.top_k();
                  std::vector<std::int32_t> ids(top_k.experts.begin(), top_k.experts.end());
                  ids[11] = bad;
                  top_k.experts = ids;
                  rank.forward(top_k);
                }),
                AllOf(HasSubstr("InvalidArgument"),
                      HasSubstr("expert id " + std::to_string(bad) + " at token 5"), HasSubstr("-1..5")));
}

TEST(MoeLayerForward, RefusesMoreTokensThanItWasMadeFor) {
  const std::vector<std::int32_t> ids(26, 0);
  const std::vector<float> weights(26, 1.0f);
  const Tensor rows(13 * 16, DataType::f32);
  EXPECT_THAT(error_of_rank_1([&](RankLayer& rank) {
                Tensor output = rows;
                rank.layer().forward({rows.data(), 13, 16, DataType::f32}, {13, 2, ids, weights},
                                     {output.data(), 13, 16, DataType::f32});
              }),
              AllOf(HasSubstr("13 tokens"), HasSubstr("0..12")));
}

TEST(MoeLayerForward, RefusesViewsOfAnotherShape) {
  EXPECT_THAT(error_of_rank_1([](RankLayer& rank) {
                ConstRows hidden = rank.hidden(9);
                hidden.columns = 17;
                rank.layer().forward(hidden, rank.top_k(), rank.output(9));
              }),
              AllOf(HasSubstr("hidden"), HasSubstr("[9, 17] f32"), HasSubstr("[9, 16] f32")));
  EXPECT_THAT(error_of_rank_1([](RankLayer& rank) {
                rank.layer().forward(rank.hidden(9), rank.top_k(), rank.output(8));
              }),
              AllOf(HasSubstr("output"), HasSubstr("[8, 16] f32")));
  EXPECT_THAT(error_of_rank_1([](RankLayer& rank) {
                Rows output = rank.output(9);
                output.type = DataType::bf16;
                rank.layer().forward(rank.hidden(9), rank.top_k(), output);
              }),
              AllOf(HasSubstr("output"), HasSubstr("bf16")));
  EXPECT_THAT(error_of_rank_1([](RankLayer& rank) {
                TopK top_k = rank.top_k();
                top_k.weights = top_k.weights.first(3);
                rank.forward(top_k);
              }),
              AllOf(HasSubstr("top_k"), HasSubstr("3 weights")));
  EXPECT_THAT(error_of_rank_1([](RankLayer& rank) {
                ConstRows hidden = rank.hidden(9);
                hidden.data = nullptr;
                rank.layer().forward(hidden, rank.top_k(), rank.output(9));
              }),
              AllOf(HasSubstr("hidden"), HasSubstr("null")));
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
  EXPECT_THAT(error_of_rank_1([](RankLayer& rank) {
                rank.layer().set_weights(small_problem().weights_of(std::vector{ExpertId(2)}));
              }),
              AllOf(HasSubstr("1 experts"), HasSubstr("the 2 at home on this rank")));
  EXPECT_THAT(error_of_rank_1([](RankLayer& rank) {
                auto weights = small_problem().weights_of(rank.layer().natives());
                weights[1].down = nullptr;
                rank.layer().set_weights(weights);
              }),
              AllOf(HasSubstr("weights of expert 3"), HasSubstr("missing")));
}

TEST(MoeLayerBackward, RefusesAStateThatHoldsNoStep) {
  EXPECT_THAT(error_of_rank_1([](RankLayer& rank) { rank.backward(ForwardState()); }),
              HasSubstr("holds no forward step"));
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
  EXPECT_THAT(error_of_rank_1([](RankLayer& rank) {
                rank.layer().backward(rank.forward(), rank.grad_output(8), rank.gradients(9));
              }),
              HasSubstr("grad_output"));
  EXPECT_THAT(error_of_rank_1([](RankLayer& rank) {
                MoeGradients gradients = rank.gradients(9);
                gradients.experts = gradients.experts.first(1);
                rank.layer().backward(rank.forward(), rank.grad_output(9), gradients);
              }),
              HasSubstr("of 1 experts"));
  EXPECT_THAT(error_of_rank_1([](RankLayer& rank) {
                MoeGradients gradients = rank.gradients(9);
                gradients.router_weights = gradients.router_weights.first(5);
                rank.layer().backward(rank.forward(), rank.grad_output(9), gradients);
              }),
              AllOf(HasSubstr("gradient of router weights"), HasSubstr("5 numbers")));
  for (const auto tensor : {&ExpertGradients::gate_up, &ExpertGradients::down})
    EXPECT_THAT(error_of_rank_1([&](RankLayer& rank) {
                  const MoeGradients gradients = rank.gradients(9);
                  std::vector<ExpertGradients> experts(gradients.experts.begin(), gradients.experts.end());
                  experts[1].*tensor = nullptr;
                  rank.layer().backward(rank.forward(), rank.grad_output(9),
                                        {gradients.hidden, gradients.router_weights, experts});
                }),
                HasSubstr("gradients of expert 3: a tensor is missing"));
}

TEST(MoeLayerBackward, IsRefusedByALayerThatWasMadeWithoutIt) {
  MoeOptions options;
  options.with_backward = false;
  EXPECT_THAT(error_of_rank_1([](RankLayer& rank) { rank.backward(rank.forward()); }, options),
              AllOf(HasSubstr("made without it"), HasSubstr("with_backward")));
}

TEST(ForwardStates, MayBeDroppedWithoutBackward) {
  run_ranks(3, [](Communicator& comm) {
    Arena arena(Device::cpu());
    RankLayer rank(small_problem(), comm, arena);
    for (int i = 0; i < 3; ++i) {
      const ForwardState dropped = rank.forward();
      EXPECT_GT(arena.in_use_bytes(), 0);
    }
    EXPECT_EQ(arena.in_use_bytes(), 0);
    rank.step();
    EXPECT_EQ(arena.in_use_bytes(), 0);
  });
}

// Several in flight, consumed in another order: each must give the gradients that its own step gives alone.
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

// The first state goes when the second is there, so that what is left is in two pieces, neither of which
// holds all of the third: some of it is computed again.
TEST(ForwardStates, ThatAreToBeKeptWholeRunWhereSpaceIsInPieces) {
  const std::vector<std::int32_t> ids(2 * 400, 0);  // all to one expert
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

TEST(ForwardStates, OfLayersOfUnlikeShapesShareOneBudget) {
  const ExpertShape wide{48, 16, Activation::swiglu, false, DataType::f32};
  const MoeCase first_case({{6, 2, kSmallExpert}, {700, 100, 300}, 2.0, 0.1}, 2);
  const MoeCase second_case({{9, 3, wide}, {200, 600, 0}, 2.0, 0.1}, 3);
  run_ranks(3, [&](Communicator& comm) {
    const auto steps = [&](Arena& arena) {
      RankLayer first(first_case, comm, arena);
      RankLayer second(second_case, comm, arena);
      std::vector<Tensor> seen;
      for (int round = 0; round < 3; ++round) {
        ForwardState one = first.forward();
        ForwardState other = second.forward();
        first.backward(std::move(one));
        second.backward(std::move(other));
        for (const RankLayer* layer : {&first, &second}) {
          seen.push_back(layer->output());
          seen.push_back(layer->grad_hidden());
        }
      }
      return seen;
    };
    Arena unbounded(Device::cpu());
    const std::vector<Tensor> expected = steps(unbounded);
    std::int64_t least = 0;
    try {
      Arena small(Device::cpu(), RankLayer(first_case, comm, unbounded).layer().least_budget());
      RankLayer first(first_case, comm, small);
      MoeOptions options;
      options.max_tokens = 600;
      const LayerPlacement placement = LayerPlacement::contiguous(9, 3);
      MoeLayer(comm, small, second_case.shape().moe, placement, options);
    } catch (const BudgetTooSmall& error) {
      least = std::get<std::int64_t>(error.data()[1].value);
    }
    ASSERT_GT(least, 0);
    for (std::int64_t budget : {least, least + least / 3, 3 * least}) {
      Arena arena(Device::cpu(), budget);
      const std::vector<Tensor> bounded = steps(arena);
      EXPECT_LE(arena.peak_bytes(), budget);
      for (std::size_t i = 0; i < expected.size(); i += 2)
        EXPECT_EQ(bounded[i], expected[i]) << "output " << i;
    }
  });
}

}  // namespace
}  // namespace evenkeel::testing
