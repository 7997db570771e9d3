// CPU experts with a function wrapped around each computing call.
#pragma once

#include <memory>
#include <utility>

#include "evenkeel/compute/cpu/expert_ffn.h"

namespace evenkeel::testing {

// Calls around(what, call) instead of call(); `what` is the function's name.
template <class Around>
class WrappedExperts final : public ExpertFfn {
 public:
  WrappedExperts(const ExpertShape& shape, Around around)
      : inner_(make_cpu_expert_ffn(shape, true)), around_(std::move(around)) {}

  const ExpertShape& shape() const override { return inner_->shape(); }
  const BitwiseReport& bitwise() const override { return inner_->bitwise(); }
  std::int64_t prepared_bytes(Pass pass) const override { return inner_->prepared_bytes(pass); }
  std::int64_t workspace_bytes(Pass pass) const override { return inner_->workspace_bytes(pass); }
  std::int64_t least_workspace_bytes(Pass pass) const override { return inner_->least_workspace_bytes(pass); }
  std::int64_t saved_bytes_per_position() const override { return inner_->saved_bytes_per_position(); }
  std::int64_t saved_margin_bytes() const override { return inner_->saved_margin_bytes(); }

  void prepare(const ExpertWeights& weights, Pass pass, std::span<std::byte> prepared) const override {
    around_("prepare", [&] { inner_->prepare(weights, pass, prepared); });
  }
  void forward(const ExpertBatch& batch, const SplitRows& input, void* output,
               std::span<std::byte> workspace) const override {
    around_("forward", [&] { inner_->forward(batch, input, output, workspace); });
  }
  void backward(const ExpertBatch& batch, const SplitRows& input, const SplitRows& grad_output,
                std::span<const float> weight, const SplitSums& grad_input, std::span<float> grad_weight,
                std::span<std::byte> workspace) const override {
    around_("backward",
            [&] { inner_->backward(batch, input, grad_output, weight, grad_input, grad_weight, workspace); });
  }

 private:
  std::shared_ptr<const ExpertFfn> inner_;
  Around around_;
};

}  // namespace evenkeel::testing
