// Experts on the GPU, forward and backward, compared with dense fp64.
#include "evenkeel/compute/cuda/expert_ffn.h"

#include <gtest/gtest.h>

#include "evenkeel/base/error.h"
#include "tests/compute/cuda/gpu_experts.h"
#include "tests/support/gpu.h"

namespace evenkeel::testing {
namespace {

constexpr Activation kActivations[] = {Activation::swiglu, Activation::clamped_swiglu, Activation::gelu};

// Runs each kernel that the GPU supports. Sizes are multiples of step().
class GpuExpertsTest : public ::testing::TestWithParam<CudaKernels> {
 protected:
  void SetUp() override {
    SKIP_WITHOUT_GPU();
    if (GetParam() != CudaKernels::hopper) return;
    try {
      make_cuda_expert_ffn({8, 8, Activation::swiglu, false, DataType::bf16},
                           {.kernels = CudaKernels::hopper});
    } catch (const Unsupported& why) {
      GTEST_SKIP() << why.what();
    }
  }
  static int step() { return GetParam() == CudaKernels::hopper ? 8 : 1; }
  static GpuOptions options() { return {.kernels = GetParam()}; }
};

TEST_P(GpuExpertsTest, AreDenseOnesForAnyShapeAndAnyNumbersOfRows) {
  std::mt19937_64 random(11);
  const auto between = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  for (Activation activation : kActivations)
    for (bool biases : {false, true})
      for (int round = 0; round < 4; ++round) {
        const ExpertShape expert{step() * between(1, 200 / step()), step() * between(1, 200 / step()),
                                 activation, biases, DataType::bf16};
        const MoeCase problem({{between(1, 9), between(1, 4), expert}, {between(1, 300)}, 3.0, 0.1},
                              random());
        expect_dense(problem, GpuExperts(problem, options()).run(),
                     std::string(name_of(activation)) + " " + std::to_string(expert.hidden) + " x " +
                         std::to_string(expert.intermediate));
      }
}

TEST_P(GpuExpertsTest, AreDenseOnesWhereEveryOperandHasSeveralTilesAndBlocks) {
  for (Activation activation : kActivations) {
    const MoeCase problem({{5, 2, {712, 584, activation, true, DataType::bf16}}, {700}, 2.0, 0.0}, 5);
    expect_dense(problem, GpuExperts(problem, options()).run(), std::string(name_of(activation)));
  }
}

TEST_P(GpuExpertsTest, ComputeAgainWhatWasNotSavedToTheSameBits) {
  for (Activation activation : kActivations) {
    const MoeCase problem({{6, 2, {136, 104, activation, true, DataType::bf16}}, {500}, 1.0, 0.0}, 7);
    GpuOptions again = options();
    again.recompute = true;
    EXPECT_TRUE(GpuExperts(problem, options()).run() == GpuExperts(problem, again).run())
        << name_of(activation);
  }
}

TEST_P(GpuExpertsTest, GiveTheSameBitsEveryTime) {
  const MoeCase problem({{8, 3, {328, 296, Activation::swiglu, true, DataType::bf16}}, {900}, 2.0, 0.0}, 9);
  GpuExperts experts(problem, options());
  const FfnOutcome first = experts.run();
  for (int round = 0; round < 10; ++round) ASSERT_TRUE(experts.run() == first) << round;
}

TEST_P(GpuExpertsTest, GiveARowTheSameBitsWhereverItIs) {
  const MoeCase problem({{4, 3, {328, 296, Activation::swiglu, true, DataType::bf16}}, {600}, 2.0, 0.0}, 9);
  const FfnOutcome plain = GpuExperts(problem, options()).run();
  for (std::uint64_t shuffle : {1u, 2u, 3u}) {
    GpuOptions moved = options();
    moved.shuffle = shuffle;
    moved.gap = static_cast<int>(37 * shuffle);
    const FfnOutcome other = GpuExperts(problem, moved).run();
    EXPECT_TRUE(plain.results == other.results);
    EXPECT_TRUE(plain.grad_weight == other.grad_weight);
  }
}

TEST_P(GpuExpertsTest, AddToGradientsOfBf16WithinItsRounding) {
  const MoeCase problem({{3, 1, {72, 40, Activation::clamped_swiglu, true, DataType::bf16}}, {150}, 1.0, 0.0},
                        11);
  GpuOptions rounded = options();
  rounded.gradients = DataType::bf16;
  expect_dense(problem, GpuExperts(problem, rounded).run(), "bf16 gradients");
}

TEST_P(GpuExpertsTest, AreTheSameInAGraphThatIsReplayed) {
  const MoeCase problem({{6, 2, {136, 104, Activation::swiglu, true, DataType::bf16}}, {500}, 2.0, 0.0}, 13);
  GpuExperts experts(problem, options());
  const FfnOutcome launched = experts.run();
  EXPECT_TRUE(experts.replay(3) == launched);
}

INSTANTIATE_TEST_SUITE_P(Kernels, GpuExpertsTest,
                         ::testing::Values(CudaKernels::hopper, CudaKernels::generic),
                         [](const auto& kernels) {
                           return kernels.param == CudaKernels::hopper ? "Hopper" : "Generic";
                         });

TEST(MakeCudaExpertFfn, RefusesWhatItCannotRunAndSaysWhy) {
  EXPECT_THROW(make_cuda_expert_ffn({0, 8, Activation::swiglu, false, DataType::bf16}), InvalidArgument);
  EXPECT_THROW(make_cuda_expert_ffn({8, -1, Activation::swiglu, false, DataType::bf16}), InvalidArgument);
  EXPECT_THROW(make_cuda_expert_ffn({8, 8, Activation::swiglu, false, DataType::f32}), Unsupported);
  SKIP_WITHOUT_GPU();
  EXPECT_THROW(make_cuda_expert_ffn({9, 8, Activation::swiglu, false, DataType::bf16},
                                    {.kernels = CudaKernels::hopper}),
               Unsupported);
}

TEST(CudaExpertFfn, RefusesAWorkspaceThatIsTooSmall) {
  SKIP_WITHOUT_GPU();
  const auto ffn = make_cuda_expert_ffn({8, 8, Activation::swiglu, false, DataType::bf16});
  CudaStream stream;
  EXPECT_THROW(ffn->forward({}, nullptr, nullptr, nullptr, {}, stream), InvalidArgument);
}

}  // namespace
}  // namespace evenkeel::testing
