// Forward and backward as the GPU's kernels do them, indices, swizzles, descriptors and fragments included,
// emulated on the host and held against dense fp64.
#include <gtest/gtest.h>

#include <memory>

#include "evenkeel/base/error.h"
#include "tests/compute/emulation/grouped_case.h"
#include "tests/compute/emulation/machines.h"

namespace evenkeel::testing {
namespace {

struct Options {
  bool recompute = false;
  std::uint64_t shuffle = 0;
  int gap = 0;
  DataType gradients = DataType::f32;
};

// Device memory: aligned, and no number anywhere until something is written.
class Memory {
 public:
  explicit Memory(std::int64_t bytes) : lines_(new Line[number(bytes / 64 + 2)]) {
    std::memset(static_cast<void*>(lines_.get()), 0xff, number(bytes / 64 + 2) * 64);
  }
  std::byte* data() { return reinterpret_cast<std::byte*>(lines_.get()); }

 private:
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  std::unique_ptr<Line[]> lines_;
};

template <class Machine>
class Emulation {
 public:
  Emulation(const MoeCase& problem, const Options& options)
      : problem_(problem),
        shape_(problem.shape().moe.expert),
        options_(options),
        grouped_(problem, options.shuffle, options.gap),
        weights_(problem.weights().begin(), problem.weights().end()),
        gradients_(weights_.size()) {
    groups_ = {.num_groups = grouped_.num_groups(),
               .begin = grouped_.begin.data(),
               .weights = weights_.data(),
               .gradients = gradients_.data(),
               .input_row = grouped_.input_row.data(),
               .output_row = grouped_.output_row.data(),
               .max_positions = grouped_.positions() + 3};
  }

  FfnOutcome run() {
    FfnOutcome outcome = empty_outcome(problem_);
    Memory saved(groups_.max_positions * shape_.gate_up_rows() * 2);
    forward(outcome, options_.recompute ? nullptr : saved.data());
    backward(outcome, options_.recompute ? nullptr : saved.data());
    return outcome;
  }

 private:
  void forward(FfnOutcome& outcome, std::byte* saved) {
    cuda::Carver count(nullptr);
    cuda::ForwardPieces(count, shape_, groups_.num_groups, groups_.max_positions);
    Memory workspace(count.used());
    cuda::Carver carver(workspace.data());
    const cuda::ForwardPieces pieces(carver, shape_, groups_.num_groups, groups_.max_positions);
    Machine machine;
    cuda::with_activation(shape_.activation, [&]<Activation kActivation>() {
      cuda::run_forward<kActivation>(machine, shape_, groups_, problem_.hidden(0, problem_.all_tokens()).data,
                                     outcome.results.data(), saved, pieces);
    });
  }

  void backward(FfnOutcome& outcome, const std::byte* saved) {
    std::vector<std::vector<bf16>> rounded(weights_.size(),
                                           std::vector<bf16>(number(shape_.elements()), bf16(0.0f)));
    for (std::size_t e = 0; e < weights_.size(); ++e)
      gradients_[e] = options_.gradients == DataType::f32
                          ? gradients_in(shape_, outcome.grad_experts[e].data())
                          : gradients_in(shape_, rounded[e].data());
    const DeviceBackward call{.input = problem_.hidden(0, problem_.all_tokens()).data,
                              .grad_output = problem_.grad_output(0, problem_.all_tokens()).data,
                              .weight = grouped_.top_k.weights.data(),
                              .saved = saved,
                              .grad_weight = outcome.grad_weight.data(),
                              .grad_input = outcome.grad_input.data(),
                              .input_rows = problem_.all_tokens()};
    cuda::Carver count(nullptr);
    cuda::BackwardPieces(count, shape_, groups_.num_groups, groups_.max_positions, call,
                         Machine::kDotColumns);
    Memory workspace(count.used());
    cuda::Carver carver(workspace.data());
    const cuda::BackwardPieces pieces(carver, shape_, groups_.num_groups, groups_.max_positions, call,
                                      Machine::kDotColumns);
    Machine machine;
    cuda::with_activation(shape_.activation, [&]<Activation kActivation>() {
      cuda::run_backward<kActivation>(machine, shape_, groups_, call, pieces, options_.gradients);
    });
    if (options_.gradients == DataType::f32) return;
    for (std::size_t e = 0; e < rounded.size(); ++e)
      for (std::size_t i = 0; i < rounded[e].size(); ++i)
        outcome.grad_experts[e][i] = static_cast<float>(rounded[e][i]);
  }

  const MoeCase& problem_;
  ExpertShape shape_;
  Options options_;
  GroupedCase grouped_;
  std::vector<ExpertWeights> weights_;
  std::vector<DeviceExpertGradients> gradients_;
  DeviceGroups groups_;
};

template <class Machine>
class EmulatedExperts : public ::testing::Test {
 protected:
  static constexpr bool kHopper = std::is_same_v<Machine, HopperEmulation>;
  static FfnOutcome run(const MoeCase& problem, const Options& options = {}) {
    return Emulation<Machine>(problem, options).run();
  }
};
using Machines = ::testing::Types<HopperEmulation, GenericEmulation>;
TYPED_TEST_SUITE(EmulatedExperts, Machines);

constexpr Activation kAll[] = {Activation::swiglu, Activation::clamped_swiglu, Activation::gelu};

TYPED_TEST(EmulatedExperts, AreDenseOnesForAnyNumbersOfRows) {
  std::mt19937_64 random(21);
  const auto between = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  for (Activation activation : kAll)
    for (bool biases : {false, true}) {
      // Bulk copies take multiples of 8 only.
      const int step = this->kHopper ? 8 : 1;
      const ExpertShape expert{step * between(1, 130 / step), step * between(1, 130 / step), activation,
                               biases, DataType::bf16};
      const MoeCase problem({{between(1, 6), between(1, 4), expert}, {between(1, 120)}, 2.0, 0.1}, random());
      expect_dense(problem, this->run(problem),
                   std::string(name_of(activation)) + " " + std::to_string(expert.hidden) + " x " +
                       std::to_string(expert.intermediate));
    }
}

TYPED_TEST(EmulatedExperts, AreDenseOnesWhereEveryOperandHasSeveralTilesAndBlocks) {
  for (Activation activation : kAll) {
    const ExpertShape expert{328, 296, activation, true, DataType::bf16};
    const MoeCase problem({{2, 2, expert}, {140}, 1.0, 0.0}, 5);
    expect_dense(problem, this->run(problem), std::string(name_of(activation)));
  }
}

TYPED_TEST(EmulatedExperts, ComputeAgainWhatWasNotSavedToTheSameBits) {
  for (Activation activation : kAll) {
    const ExpertShape expert{72, 88, activation, true, DataType::bf16};
    const MoeCase problem({{3, 2, expert}, {90}, 1.0, 0.0}, 7);
    EXPECT_TRUE(this->run(problem) == this->run(problem, {.recompute = true})) << name_of(activation);
  }
}

TYPED_TEST(EmulatedExperts, GiveARowTheSameBitsWhereverItIs) {
  const ExpertShape expert{64, 72, Activation::swiglu, true, DataType::bf16};
  const MoeCase problem({{3, 3, expert}, {150}, 1.0, 0.0}, 9);
  const FfnOutcome plain = this->run(problem), moved = this->run(problem, {.shuffle = 3, .gap = 37});
  EXPECT_TRUE(plain.results == moved.results);
  EXPECT_TRUE(plain.grad_weight == moved.grad_weight);
}

TYPED_TEST(EmulatedExperts, AddToGradientsOfBf16WithinItsRounding) {
  const ExpertShape expert{40, 24, Activation::clamped_swiglu, true, DataType::bf16};
  const MoeCase problem({{2, 1, expert}, {60}, 1.0, 0.0}, 11);
  expect_dense(problem, this->run(problem, {.gradients = DataType::bf16}), "bf16 gradients");
}

TYPED_TEST(EmulatedExperts, DoNothingWithoutRows) {
  const ExpertShape expert{16, 16, Activation::swiglu, true, DataType::bf16};
  MoeCase problem({{3, 1, expert}, {4}, 1.0, 0.0}, 13);
  std::fill(problem.ids().begin(), problem.ids().end(), -1);
  EXPECT_TRUE(this->run(problem) == empty_outcome(problem));
}

}  // namespace
}  // namespace evenkeel::testing
