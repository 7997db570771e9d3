#include "cli/turns.h"

#include <utility>

namespace evenkeel::cli {

namespace {

class Turn {
 public:
  explicit Turn(std::counting_semaphore<>& slots) : slots_(slots) { slots_.acquire(); }
  ~Turn() { slots_.release(); }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  std::counting_semaphore<>& slots_;
};

class InTurns final : public ExpertFfn {
 public:
  InTurns(std::shared_ptr<const ExpertFfn> inner, std::shared_ptr<std::counting_semaphore<>> slots)
      : inner_(std::move(inner)), slots_(std::move(slots)) {}

  const ExpertShape& shape() const override { return inner_->shape(); }
  const BitwiseReport& bitwise() const override { return inner_->bitwise(); }
  std::int64_t prepared_bytes(Pass pass) const override { return inner_->prepared_bytes(pass); }
  std::int64_t workspace_bytes(Pass pass) const override { return inner_->workspace_bytes(pass); }
  std::int64_t least_workspace_bytes(Pass pass) const override { return inner_->least_workspace_bytes(pass); }
  std::int64_t saved_bytes_per_position() const override { return inner_->saved_bytes_per_position(); }
  std::int64_t saved_margin_bytes() const override { return inner_->saved_margin_bytes(); }
  void prepare(const ExpertWeights& weights, Pass pass, std::span<std::byte> prepared) const override {
    inner_->prepare(weights, pass, prepared);
  }

  void forward(const ExpertBatch& batch, const SplitRows& input, void* output,
               std::span<std::byte> workspace) const override {
    const Turn turn(*slots_);
    inner_->forward(batch, input, output, workspace);
  }
  void backward(const ExpertBatch& batch, const SplitRows& input, const SplitRows& grad_output,
                std::span<const float> weight, const SplitSums& grad_input, std::span<float> grad_weight,
                std::span<std::byte> workspace) const override {
    const Turn turn(*slots_);
    inner_->backward(batch, input, grad_output, weight, grad_input, grad_weight, workspace);
  }

 private:
  std::shared_ptr<const ExpertFfn> inner_;
  std::shared_ptr<std::counting_semaphore<>> slots_;
};

}  // namespace

std::shared_ptr<const ExpertFfn> in_turns(std::shared_ptr<const ExpertFfn> inner,
                                          std::shared_ptr<std::counting_semaphore<>> slots) {
  return std::make_shared<InTurns>(std::move(inner), std::move(slots));
}

}  // namespace evenkeel::cli
