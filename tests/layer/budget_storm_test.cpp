// Random routings through layers that share one arena, with several states alive. The budget is always kept.
// Compared with a run without a budget, outputs are bitwise equal and gradients equal within rounding.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <deque>
#include <random>

#include "evenkeel/base/error.h"
#include "evenkeel/comm/thread/run_ranks.h"
#include "tests/layer/rank_layer.h"
#include "tests/layer/same_gradients.h"

namespace evenkeel::testing {
namespace {

constexpr int kRanks = 4;
constexpr int kLayers = 2;
constexpr int kStates = 2;  // states in flight per layer
constexpr int kTopK = 3;
constexpr std::int64_t kMaxTokens = 160;

// What one rank's tokens choose. A step's routing has an entry per rank.
struct Choices {
  std::vector<std::int32_t> ids;
  std::vector<float> weights;
};
using StepRouting = std::vector<Choices>;

// Adversarial routing: all tokens to one expert or one rank, repeated ids, ranks without tokens or with
// different numbers of them, hot spots that move from token to token, and a rank that receives all others'
// tokens and sends its own away.
StepRouting adversarial(int experts, std::mt19937& random) {
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  const int kind = below(8);
  const int hot = below(experts);
  const int busy = hot * kRanks / experts;  // approximately the rank that owns `hot`
  StepRouting routing(kRanks);
  for (std::size_t r = 0; r < kRanks; ++r) {
    Choices& rank = routing[r];
    const int shape = below(4);
    const std::int64_t tokens = shape == 0   ? 0
                                : shape == 1 ? kMaxTokens
                                             : below(static_cast<int>(kMaxTokens) + 1);
    for (std::int64_t token = 0; token < tokens; ++token)
      for (int i = 0; i < kTopK; ++i) {
        std::int32_t id = below(experts);
        if (kind == 0) id = hot;                                                      // repeated ids
        if (kind == 1) id = (hot + i) % experts;                                      // the same experts
        if (kind == 2) id = busy * 2 % experts + i % 2;                               // mostly one rank
        if (kind == 3) id = static_cast<std::int32_t>(token * experts / kMaxTokens);  // a moving hot spot
        if (kind == 4 && below(3) > 0) id = -1;
        if (kind == 5 && below(20) > 0) id = hot;
        if (kind == 7) id = (hot + (static_cast<int>(r) == busy ? (i + 1) * experts / kRanks : 0)) % experts;
        rank.ids.push_back(id);
        rank.weights.push_back(0.05f + static_cast<float>(below(100)) / 100);
      }
  }
  return routing;
}

// The tensors that the layers of all ranks computed in a run, in order.
struct Recorded {
  std::vector<std::vector<Tensor>> outputs{kRanks};
  std::vector<std::vector<Tensor>> grads{kRanks};
  std::vector<std::vector<std::vector<float>>> grad_experts{kRanks};  // of all native experts, at the end
  std::int64_t peak = 0;
  std::size_t chunks = 0;  // sum over all steps
};

struct Policy {
  Recompute recompute = Recompute::automatic;
  // The expert's sizes. Borrowed weights of a large expert take much memory compared with saved activations.
  std::int64_t hidden = 8;
  std::int64_t intermediate = 8;
  PlannerOptions::Kind planner = PlannerOptions::Kind::level;
  DataType type = DataType::f32;
  // With many experts, the counts of a step take more memory than its rows.
  int experts = 10;

  bool has_small_experts() const { return intermediate == 8; }
  // Under the policies for which this is false, the least budget has memory for a whole step.
  bool cuts() const { return recompute == Recompute::automatic || recompute == Recompute::chunk; }
  bool has_wide_rows() const { return hidden > 16; }  // a row is larger than any rounding to cache lines
  // Differs between policies, so that no two get the same routings.
  unsigned first_seed() const {
    return static_cast<unsigned>(recompute) + 16 * static_cast<unsigned>(planner) +
           64 * static_cast<unsigned>(type) + (has_small_experts() ? 0 : 256) +
           512 * static_cast<unsigned>(experts) + (has_wide_rows() ? 1u << 16 : 0);
  }
};

// Layers of different shapes.
std::vector<MoeCase> problems_of(const Policy& policy) {
  std::vector<MoeCase> problems;
  for (int layer = 0; layer < kLayers; ++layer) {
    const ExpertShape expert{policy.hidden + 8 * layer, policy.intermediate + 8 * layer, Activation::swiglu,
                             layer > 0, policy.type};
    problems.emplace_back(
        CaseShape{{policy.experts, kTopK, expert}, std::vector<std::int64_t>(kRanks, kMaxTokens), 0.0, 0.0},
        static_cast<std::uint64_t>(1 + layer));
  }
  return problems;
}

// The layers take the steps in turn. Backward consumes the oldest or the newest state, or a state is dropped.
Recorded run_all(const std::vector<StepRouting>& steps, const std::vector<MoeCase>& problems,
                 std::int64_t budget, const Policy& policy, unsigned seed) {
  Recorded result;
  std::vector<std::int64_t> peaks(kRanks);
  run_ranks(kRanks, [&](Communicator& comm) {
    const auto rank = static_cast<std::size_t>(comm.rank().value());
    std::mt19937 random(seed);  // the same on every rank
    Arena arena(Device::cpu(), budget);
    MoeOptions options;
    options.planner = {policy.planner, 1000, 4, 1000};
    options.states_in_flight = kStates;
    options.cpu().memory.recompute = policy.recompute;
    std::vector<std::unique_ptr<RankLayer>> layers;
    for (const MoeCase& problem : problems)
      layers.push_back(std::make_unique<RankLayer>(problem, comm, arena, options));
    struct Waiting {
      int layer;
      std::size_t step;
      ForwardState state;
    };
    std::deque<Waiting> waiting;
    for (std::size_t step = 0; step < steps.size(); ++step) {
      const int layer = static_cast<int>(step) % kLayers;
      const auto of = [&](std::size_t at) {
        const Choices& mine = steps[at][rank];
        return TopK{static_cast<std::int64_t>(mine.ids.size()) / kTopK, kTopK, mine.ids, mine.weights};
      };
      waiting.push_back({layer, step, layers[static_cast<std::size_t>(layer)]->forward(of(step))});
      if (rank == 0) {
        const auto chunks = waiting.back().state.chunks();
        result.chunks += chunks.size();
      }
      result.outputs[rank].push_back(layers[static_cast<std::size_t>(layer)]->output());
      if (waiting.size() < kStates * kLayers) continue;
      // One state of each layer is consumed, so that both layers have memory again.
      for (int i = 0; i < kLayers; ++i) {
        auto at = waiting.begin();
        if (random() % 2 == 0) {
          at = waiting.end();
          do --at;
          while (at->layer != i);
        } else {
          while (at->layer != i) ++at;
        }
        Waiting taken = std::move(*at);
        waiting.erase(at);
        if (random() % 5 == 0) continue;  // the state is dropped without backward
        RankLayer& its = *layers[static_cast<std::size_t>(taken.layer)];
        its.backward(std::move(taken.state), of(taken.step));
        result.grads[rank].push_back(its.grad_hidden());
      }
    }
    waiting.clear();
    if (budget == Arena::kNoBudget) {
      EXPECT_EQ(arena.in_use_bytes(), 0);  // states were either consumed or dropped
    }
    for (const auto& layer : layers)
      for (const auto& grads : layer->grad_experts()) result.grad_experts[rank].push_back(grads);
    peaks[rank] = arena.peak_bytes();
  });
  result.peak = std::ranges::max(peaks);
  return result;
}

// The least budget of all layers together. With one byte less, the last layer is refused.
std::int64_t least_of_all(const std::vector<MoeCase>& problems, const Policy& policy) {
  std::int64_t enough = 1;
  for (int layer = 0; layer < kLayers; ++layer) try {
      run_all({}, problems, enough, policy, 0);
    } catch (const BudgetTooSmall& error) {
      enough = std::get<std::int64_t>(error.data()[1].value);
    }
  EXPECT_THROW(run_all({}, problems, enough - 1, policy, 0), BudgetTooSmall);
  return enough;
}

// Tolerance of a row's gradient, relative to the largest gradient. In bf16, each rank that computes some of
// the row's k results sends a share of the gradient. In each run, every share and the sum of the shares are
// rounded once, by at most half a unit in the last place. This assumes that no share exceeds the largest sum.
float row_rounding(DataType type) {
  return type == DataType::f32 ? kSumRounding : 2 * (kTopK + 1) * 0x1p-8f;
}
// Tolerance of an expert's gradient. In bf16, the gradient is a sum over rows of rounded terms. A term is
// itself an f32 sum. If that sum is added in a different order, the term may round to a neighbouring number,
// which differs by 2^-7 of the term. This is rare, and the tolerance assumes that the largest gradient is at
// least 64 times such a term.
float expert_rounding(DataType type) {
  return type == DataType::f32 ? kSumRounding : kSumRounding + 0x1p-7f / 64;
}

// EVENKEEL_STORM=20 runs 20 times as many seeds, as `make test-long` does.
unsigned seeds() {
  const char* const given = std::getenv("EVENKEEL_STORM");
  return given != nullptr ? static_cast<unsigned>(std::stoul(given)) : 1;
}

// Four budgets in geometric progression, from the least budget to an ample one. Under the ample one, a step
// runs as if there were no budget.
std::int64_t budget_of(int index, std::int64_t least, std::int64_t ample) {
  const double growth = std::max(1.0, static_cast<double>(ample) / static_cast<double>(least));
  return static_cast<std::int64_t>(static_cast<double>(least) * std::pow(growth, index / 3.0));
}

constexpr auto kPlain = PlannerOptions::Kind::ep;
constexpr auto kLeastLoaded = PlannerOptions::Kind::least_loaded;
constexpr auto kLevel = PlannerOptions::Kind::level;
constexpr auto kF32 = DataType::f32;
constexpr auto kBf16 = DataType::bf16;

class Storm : public ::testing::TestWithParam<Policy> {};

TEST_P(Storm, StaysWithinEveryBudgetAndChangesNoNumber) {
  const Policy& policy = GetParam();
  const std::vector<MoeCase> problems = problems_of(policy);
  for (unsigned seed = 0; seed < seeds(); ++seed) {
    std::mt19937 random(seed * 1000 + policy.first_seed());
    std::vector<StepRouting> steps;
    for (int step = 0; step < (kUnderThreadSanitizer ? 12 : 40); ++step)
      steps.push_back(adversarial(policy.experts, random));
    Policy ample = policy;
    ample.recompute = Recompute::none;
    const Recorded free = run_all(steps, problems, Arena::kNoBudget, ample, seed);
    const std::int64_t least = least_of_all(problems, policy);
    for (int budget = 0; budget < 4; ++budget) {
      const std::int64_t bytes = budget_of(budget, least, free.peak);
      const Recorded bounded = run_all(steps, problems, bytes, policy, seed);
      ASSERT_LE(bounded.peak, bytes);
      if (budget == 0 && policy.has_small_experts() && policy.cuts()) {
        ASSERT_GT(bounded.chunks, 2 * steps.size());
      }
      ASSERT_EQ(bounded.outputs, free.outputs) << "seed " << seed << ", budget " << bytes;
      for (std::size_t rank = 0; rank < kRanks; ++rank) {
        ASSERT_EQ(bounded.grads[rank].size(), free.grads[rank].size());
        for (std::size_t i = 0; i < free.grads[rank].size(); ++i)
          expect_close(bounded.grads[rank][i], free.grads[rank][i], row_rounding(policy.type));
        for (std::size_t i = 0; i < free.grad_experts[rank].size(); ++i)
          expect_close(bounded.grad_experts[rank][i], free.grad_experts[rank][i],
                       expert_rounding(policy.type));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Policies, Storm,
                         ::testing::Values(Policy{Recompute::automatic}, Policy{Recompute::chunk},
                                           Policy{Recompute::automatic, 16, 160},
                                           Policy{Recompute::automatic, 16, 160, kLeastLoaded, kBf16},
                                           Policy{Recompute::automatic, 8, 8, kLevel, kBf16},
                                           Policy{Recompute::chunk, 8, 8, kPlain, kBf16},
                                           Policy{Recompute::automatic, 8, 8, kLeastLoaded},
                                           Policy{Recompute::none}, Policy{Recompute::whole},
                                           Policy{Recompute::none, 16, 160, kLeastLoaded, kBf16},
                                           Policy{Recompute::automatic, 96, 8},
                                           Policy{Recompute::automatic, 96, 8, kLevel, kBf16},
                                           Policy{Recompute::automatic, 8, 8, kLevel, kF32, 96},
                                           Policy{Recompute::automatic, 8, 8, kLeastLoaded, kBf16, 96}));

}  // namespace
}  // namespace evenkeel::testing
