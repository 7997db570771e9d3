// Experts on the CPU, forward and backward, without a layer, compared with dense fp64.
#include "evenkeel/compute/cpu/expert_ffn.h"

#include <gtest/gtest.h>

#include "evenkeel/base/error.h"
#include "evenkeel/compute/cpu/internal/row_ladder.h"
#include "evenkeel/device/cpu/rows.h"
#include "tests/compute/emulation/grouped_case.h"

namespace evenkeel::testing {
namespace {

// All assignments of a one-rank case as one batch. Results are written in a different order than they are
// computed, and tokens with several experts are read several times.
class Batch {
 public:
  explicit Batch(const MoeCase& problem)
      : problem_(problem),
        shape_(problem.shape().moe.expert),
        grouped_(problem),
        top_k_(grouped_.top_k),
        ffn_(make_cpu_expert_ffn(shape_, true)) {
    for (std::size_t e = 0; e < problem.weights().size(); ++e)
      groups_.push_back({nullptr, {}, grouped_.begin[e], grouped_.begin[e + 1]});
  }

  // Workspace of each call: 0 is the least possible, 1 as much as makes it fast.
  void set_workspace(double share) { workspace_share_ = share; }

  // With `recompute`, nothing is saved in forward: backward recomputes it from weights prepared for that
  // pass. With `in_halves`, gate_up is prepared first, then the rest.
  FfnOutcome run(std::optional<Pass> recompute = {}, bool in_halves = false) {
    in_halves_ = in_halves;
    FfnOutcome outcome = empty_outcome(problem_);
    std::vector<std::byte> saved(grouped_.input_row.size() * number(ffn_->saved_bytes_per_position()) +
                                 number(ffn_->saved_margin_bytes()));
    attach(outcome);
    const ExpertBatch batch{groups_, grouped_.input_row, grouped_.output_row};
    std::vector<std::byte> rest, grad_rest;
    const SplitRows hidden = split(problem_.hidden(0, problem_.all_tokens()), rest);
    const SplitRows grad_output = split(problem_.grad_output(0, problem_.all_tokens()), grad_rest);
    const auto forward_weights = prepare(Pass::forward, &ExpertGroup::prepared);
    auto workspace = lines(workspace_bytes(Pass::forward));
    const auto keep = [&](bool keeps) {
      for (ExpertGroup& group : groups_)
        group.saved = keeps ? saved.data() + group.begin * ffn_->saved_bytes_per_position() : nullptr;
    };
    keep(true);
    ffn_->forward(batch, hidden, outcome.results.data(), bytes(workspace));
    const auto backward_weights = prepare(Pass::backward, &ExpertGroup::prepared);
    const auto recompute_weights =
        prepare(recompute.value_or(Pass::recompute), &ExpertGroup::recompute_prepared);
    workspace = lines(workspace_bytes(recompute ? Pass::recompute : Pass::backward));
    if (recompute) keep(false);
    const auto sums = split_sums(outcome.grad_input);
    ffn_->backward(batch, hidden, grad_output, top_k_.weights, sums, outcome.grad_weight, bytes(workspace));
    join_sums(outcome.grad_input);
    return outcome;
  }

 private:
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  std::int64_t workspace_bytes(Pass pass) const {
    const std::int64_t least = ffn_->least_workspace_bytes(pass), most = ffn_->workspace_bytes(pass);
    return least + static_cast<std::int64_t>(static_cast<double>(most - least) * workspace_share_);
  }
  static std::vector<Line> lines(std::int64_t count) { return std::vector<Line>(number((count + 63) / 64)); }
  static std::span<std::byte> bytes(std::vector<Line>& all) { return {all.data()->bytes, all.size() * 64}; }

  // The middle third of the rows is read through an index table; the other rows are copied together.
  SplitRows split(ConstRows rows, std::vector<std::byte>& rest) {
    own_index_.clear();
    const std::int64_t begin = rows.rows / 3;
    for (std::int64_t row = begin; row < 2 * begin; ++row)
      own_index_.push_back(static_cast<std::int32_t>(row));
    const auto bytes = [&](std::int64_t row) {
      return static_cast<const std::byte*>(rows::at(rows.data, row * rows.columns, rows.type));
    };
    rest.assign(bytes(0), bytes(begin));
    rest.insert(rest.end(), bytes(2 * begin), bytes(rows.rows));
    return {static_cast<const std::byte*>(rows.data), own_index_, begin, rest.data()};
  }
  // Gradient sums, split like rows in split(); join_sums() puts all rows back in order.
  SplitSums split_sums(std::vector<float>& own) {
    rest_sums_.assign(own.size(), 0.0f);
    return {own.data(), own_index_, std::ssize(own_index_), rest_sums_.data()};
  }
  void join_sums(std::vector<float>& all) const {
    const std::size_t third = own_index_.size() * number(shape_.hidden);
    std::copy_n(rest_sums_.begin(), third, all.begin());
    std::copy(rest_sums_.begin() + static_cast<std::ptrdiff_t>(third),
              rest_sums_.end() - static_cast<std::ptrdiff_t>(third),
              all.begin() + static_cast<std::ptrdiff_t>(2 * third));
  }

  void attach(FfnOutcome& outcome) {
    for (std::size_t e = 0; e < groups_.size(); ++e) {
      float* const gate_up = outcome.grad_experts[e].data();
      float* const down = gate_up + shape_.gate_up_rows() * shape_.hidden;
      float* const bias = down + shape_.intermediate * shape_.hidden;
      groups_[e].gradients = {gate_up, down, shape_.biases ? bias : nullptr,
                              shape_.biases ? bias + shape_.gate_up_rows() : nullptr};
    }
  }

  std::vector<std::vector<Line>> prepare(Pass pass, const std::byte* ExpertGroup::*where) {
    std::vector<std::vector<Line>> all;
    for (std::size_t e = 0; e < groups_.size(); ++e) {
      all.push_back(lines(ffn_->prepared_bytes(pass)));
      ExpertWeights weights = problem_.weights()[e];
      if (in_halves_) {
        ffn_->prepare({weights.gate_up, nullptr, nullptr, nullptr}, pass, bytes(all.back()));
        weights.gate_up = nullptr;
      }
      ffn_->prepare(weights, pass, bytes(all.back()));
      groups_[e].*where = all.back().data()->bytes;
    }
    return all;
  }

  const MoeCase& problem_;
  ExpertShape shape_;
  GroupedCase grouped_;
  TopK top_k_;
  std::shared_ptr<const ExpertFfn> ffn_;
  std::vector<ExpertGroup> groups_;
  std::vector<std::int32_t> own_index_;
  std::vector<float> rest_sums_;
  bool in_halves_ = false;
  double workspace_share_ = 1;
};

std::int64_t blocks_of(std::int64_t columns, DataType type) {
  using Ladder = internal::RowLadder;
  return Ladder(1, columns, type, Ladder::Plain::out_by_in, Ladder::Bits::any).blocks();
}

class Experts : public ::testing::TestWithParam<std::tuple<DataType, Activation, bool>> {};

TEST_P(Experts, AreDenseOnesForOddShapesAndAnyNumbersOfRows) {
  const auto [type, activation, biases] = GetParam();
  std::mt19937_64 random(11);
  const auto between = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  for (int round = 0; round < 4; ++round) {
    // Not 63: on CPUs with AMX, oneDNN 2.6 executes an illegal instruction in bf16 products of rows of 63
    // elements.
    const ExpertShape expert{between(1, 62), between(1, 50), activation, biases, type};
    // Skewed, so that some experts have no rows and others more than a tile.
    const MoeCase problem({{between(1, 7), between(1, 4), expert}, {between(1, 300)}, 3.0, 0.1}, random());
    expect_dense(problem, Batch(problem).run(), "round " + std::to_string(round));
  }
}

TEST_P(Experts, GiveTheSameBitsWhereNothingWasSaved) {
  const auto [type, activation, biases] = GetParam();
  const ExpertShape expert{33, 19, activation, biases, type};
  const MoeCase problem({{5, 2, expert}, {120}, 1.0, 0.0}, 3);
  const FfnOutcome saved = Batch(problem).run();
  EXPECT_TRUE(Batch(problem).run(Pass::recompute) == saved);
  EXPECT_TRUE(Batch(problem).run(Pass::forward) == saved);
}

TEST_P(Experts, GiveTheSameBitsWhereTheirWeightsComeInHalves) {
  const auto [type, activation, biases] = GetParam();
  const ExpertShape expert{33, 19, activation, biases, type};
  for (std::int64_t tokens : {1, 120, 190}) {
    const MoeCase problem({{5, 2, expert}, {tokens}, 1.0, 0.0}, 3);
    EXPECT_TRUE(Batch(problem).run({}, true) == Batch(problem).run()) << tokens;
  }
}

// Results must be bitwise equal, gradients equal within rounding.
TEST_P(Experts, AreTheSameInAnyWorkspaceFromTheLeastOn) {
  const auto [type, activation, biases] = GetParam();
  const ExpertShape expert{33, 19, activation, biases, type};
  const MoeCase problem({{5, 2, expert}, {230}, 2.0, 0.1}, 3);
  const FfnOutcome most = Batch(problem).run();
  for (const double share : {0.0, 0.03, 0.1, 0.5, 0.99})
    for (const std::optional<Pass> recompute : {std::optional<Pass>(), std::optional(Pass::recompute)})
      for (const bool in_halves : {false, true}) {
        if (recompute && in_halves) continue;
        Batch batch(problem);
        batch.set_workspace(share);
        const FfnOutcome outcome = batch.run(recompute, in_halves);
        expect_dense(problem, outcome, "share " + std::to_string(share));
        if (make_cpu_expert_ffn(expert, true)->bitwise().holds) {
          EXPECT_EQ(outcome.results, most.results);
        }
      }
}

INSTANTIATE_TEST_SUITE_P(TypesActivationsBiases, Experts,
                         ::testing::Combine(::testing::Values(DataType::f32, DataType::bf16),
                                            ::testing::Values(Activation::swiglu, Activation::clamped_swiglu,
                                                              Activation::gelu),
                                            ::testing::Bool()));

TEST(ExpertsInBlocks, AreDenseOnesWhereEveryProductIsMadeInBlocksOfColumns) {
  for (DataType type : {DataType::f32, DataType::bf16})
    for (Activation activation : {Activation::swiglu, Activation::clamped_swiglu, Activation::gelu}) {
      // 450 = 256 + 194; 575 = 256 + 256 + 63. A block of 63 columns is allowed; only rows of 63 elements are
      // not.
      const ExpertShape expert{575, 450, activation, true, type};
      for (std::int64_t columns : {expert.hidden, expert.intermediate})
        ASSERT_GT(blocks_of(columns, type), 1);
      const MoeCase problem({{3, 2, expert}, {9}, 1.0, 0.0}, 7);
      const FfnOutcome outcome = Batch(problem).run();
      expect_dense(problem, outcome, std::string(name_of(type)) + " " + std::string(name_of(activation)));
    }
}

TEST(MakeCpuExpertFfn, SharesOneObjectAndRefusesShapesWithoutRowsOrColumns) {
  const ExpertShape shape{8, 8, Activation::swiglu, false, DataType::f32};
  const auto first = make_cpu_expert_ffn(shape, true);
  EXPECT_EQ(make_cpu_expert_ffn(shape, true), first);
  EXPECT_NE(make_cpu_expert_ffn(shape, false), first);
  EXPECT_THROW(make_cpu_expert_ffn({0, 8, Activation::swiglu, false, DataType::f32}, true), InvalidArgument);
  EXPECT_THROW(make_cpu_expert_ffn({8, -1, Activation::swiglu, false, DataType::f32}, true), InvalidArgument);
  EXPECT_THROW(make_cpu_expert_ffn({63, 8, Activation::swiglu, false, DataType::bf16}, true), Unsupported);
  EXPECT_THROW(make_cpu_expert_ffn({8, 63, Activation::gelu, false, DataType::bf16}, true), Unsupported);
}

}  // namespace
}  // namespace evenkeel::testing
