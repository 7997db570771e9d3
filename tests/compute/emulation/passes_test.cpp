// Forward and backward of the GPU kernels emulated on the host, including indices, swizzles, descriptors and
// fragments, and compared with dense fp64.
#include "evenkeel/compute/cuda/internal/passes.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/compute/emulation/grouped_case.h"
#include "tests/compute/emulation/tiles.h"

namespace evenkeel::testing {
namespace {

using Run = FfnOutcome (*)(const MoeCase&, const EmulationOptions&);

class EmulatedExperts : public ::testing::TestWithParam<Run> {
 protected:
  // Hopper's bulk copies need widths that are multiples of 8.
  int step_of_widths() const { return GetParam() == run_hopper_tiles ? 8 : 1; }
  FfnOutcome run(const MoeCase& problem, const EmulationOptions& options = {}) const {
    return GetParam()(problem, options);
  }
};

INSTANTIATE_TEST_SUITE_P(Kernels, EmulatedExperts, ::testing::Values(run_hopper_tiles, run_generic_tiles),
                         [](const auto& kernel) {
                           return kernel.param == run_hopper_tiles ? "Hopper" : "Generic";
                         });

constexpr Activation kAll[] = {Activation::swiglu, Activation::clamped_swiglu, Activation::gelu};

TEST_P(EmulatedExperts, AreDenseOnesForAnyNumbersOfRows) {
  std::mt19937_64 random(21);
  const auto between = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  for (Activation activation : kAll)
    for (bool biases : {false, true}) {
      const int step = step_of_widths();
      const ExpertShape expert{step * between(1, 130 / step), step * between(1, 130 / step), activation,
                               biases, DataType::bf16};
      const MoeCase problem({{between(1, 6), between(1, 4), expert}, {between(1, 120)}, 2.0, 0.1}, random());
      expect_dense(problem, run(problem),
                   std::string(name_of(activation)) + " " + std::to_string(expert.hidden) + " x " +
                       std::to_string(expert.intermediate));
    }
}

TEST_P(EmulatedExperts, AreDenseOnesWhereEveryOperandHasSeveralTilesAndBlocks) {
  for (Activation activation : kAll) {
    const ExpertShape expert{328, 296, activation, true, DataType::bf16};
    const MoeCase problem({{2, 2, expert}, {140}, 1.0, 0.0}, 5);
    expect_dense(problem, run(problem), std::string(name_of(activation)));
  }
}

TEST_P(EmulatedExperts, ComputeAgainWhatWasNotSavedToTheSameBits) {
  for (Activation activation : kAll) {
    const ExpertShape expert{72, 88, activation, true, DataType::bf16};
    const MoeCase problem({{3, 2, expert}, {90}, 1.0, 0.0}, 7);
    EXPECT_TRUE(run(problem) == run(problem, {.recompute = true})) << name_of(activation);
  }
}

TEST_P(EmulatedExperts, GiveARowTheSameBitsWhereverItIs) {
  const ExpertShape expert{64, 72, Activation::swiglu, true, DataType::bf16};
  const MoeCase problem({{3, 3, expert}, {150}, 1.0, 0.0}, 9);
  const FfnOutcome plain = run(problem), moved = run(problem, {.shuffle = 3, .gap = 37});
  EXPECT_TRUE(plain.results == moved.results);
  EXPECT_TRUE(plain.grad_weight == moved.grad_weight);
}

TEST_P(EmulatedExperts, SumBiasesInSharesWhereThereIsSpace) {
  const ExpertShape expert{16, 16, Activation::clamped_swiglu, true, DataType::bf16};
  EXPECT_EQ(cuda::BiasGradient::shares_in(400, 2, expert.gate_up_rows()), 6);
  EXPECT_EQ(cuda::BiasGradient::shares_in(400, 500, expert.hidden), 1);
  const MoeCase problem({{2, 2, expert}, {200}, 2.0, 0.0}, 12);
  expect_dense(problem, run(problem), "shares");
}

TEST_P(EmulatedExperts, AddToGradientsOfBf16WithinItsRounding) {
  const ExpertShape expert{40, 24, Activation::clamped_swiglu, true, DataType::bf16};
  const MoeCase problem({{2, 1, expert}, {60}, 1.0, 0.0}, 11);
  expect_dense(problem, run(problem, {.gradients = DataType::bf16}), "bf16 gradients");
}

TEST_P(EmulatedExperts, DoNothingWithoutRows) {
  const ExpertShape expert{16, 16, Activation::swiglu, true, DataType::bf16};
  MoeCase problem({{3, 1, expert}, {4}, 1.0, 0.0}, 13);
  std::fill(problem.ids().begin(), problem.ids().end(), -1);
  EXPECT_TRUE(run(problem) == empty_outcome(problem));
}

}  // namespace
}  // namespace evenkeel::testing
