// A NaN or infinity in one token affects only that token and the gradients of its experts.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>

#include "evenkeel/comm/thread/run_ranks.h"
#include "evenkeel/compute/cpu/expert_ffn.h"
#include "evenkeel/device/arena.h"
#include "tests/layer/moe_case.h"
#include "tests/layer/rank_layer.h"

namespace evenkeel::testing {
namespace {

constexpr std::int64_t kHidden = 48;

std::vector<float> values_of(const Tensor& tensor) {
  std::vector<float> values;
  for (std::int64_t i = 0; i < tensor.size(); ++i) values.push_back(tensor[i]);
  return values;
}

// One element of rank 0's first token is not a finite number.
class TokenThatIsNone : public ::testing::TestWithParam<Activation> {};

TEST_P(TokenThatIsNone, LeavesAllOthersAsTheyAreForwardAndBackward) {
  const Activation activation = GetParam();
  const ExpertShape expert{kHidden, 40, activation, activation == Activation::clamped_swiglu, DataType::f32};
  const auto kept = make_cpu_expert_ffn(expert, true);
  if (!kept->bitwise().holds) GTEST_SKIP() << kept->bitwise().reason;
  const MoeCase problem({{8, 2, expert}, {30, 30}, 1.0, 0.0}, 5);
  run_ranks(2, [&](Communicator& comm) {
    Arena arena(Device::cpu());
    MoeOptions options;
    options.planner = {PlannerOptions::Kind::level, 1000, 4, 0};
    RankLayer rank(problem, comm, arena, options);
    rank.step();
    const std::vector<float> output = values_of(rank.output());
    const std::vector<float> grad_hidden = values_of(rank.grad_hidden());

    const TopK top_k = rank.top_k();
    Tensor hidden(top_k.tokens * kHidden, DataType::f32);
    std::memcpy(hidden.data(), rank.hidden(top_k.tokens).data,
                static_cast<std::size_t>(top_k.tokens * kHidden) * sizeof(float));
    const bool has_it = comm.rank().value() == 0;
    if (has_it) hidden.set(3, std::numeric_limits<float>::quiet_NaN());
    const ConstRows rows{hidden.data(), top_k.tokens, kHidden, DataType::f32};
    ForwardState state = rank.layer().forward(rows, top_k, rank.output(top_k.tokens));
    rank.backward(std::move(state));

    for (std::int64_t i = 0; i < top_k.tokens * kHidden; ++i) {
      const bool is_its = has_it && i < kHidden;
      const auto at = static_cast<std::size_t>(i);
      EXPECT_EQ(std::isnan(rank.output()[i]), is_its) << "element " << i;
      if (is_its) continue;
      EXPECT_EQ(rank.output()[i], output[at]) << "element " << i;
      EXPECT_NEAR(rank.grad_hidden()[i], grad_hidden[at], 1e-4) << "element " << i;
    }
    const TopK first = problem.top_k_of(0);
    const std::set<std::int32_t> its_experts(first.experts.begin(), first.experts.begin() + first.k);
    for (std::size_t n = 0; n < rank.grad_experts().size(); ++n) {
      const bool all_finite =
          std::ranges::all_of(rank.grad_experts()[n], [](float value) { return std::isfinite(value); });
      EXPECT_EQ(all_finite, !its_experts.contains(rank.layer().natives()[n].value()));
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Activations, TokenThatIsNone,
                         ::testing::Values(Activation::swiglu, Activation::clamped_swiglu, Activation::gelu));

}  // namespace
}  // namespace evenkeel::testing
