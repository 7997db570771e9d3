#include "evenkeel/study/internal/turns.h"

#include <semaphore>
#include <utility>

namespace evenkeel::internal {

namespace {

class InTurns final : public ExpertFfn {
 public:
  InTurns(std::shared_ptr<const ExpertFfn> inner, int cores) : inner_(std::move(inner)), cores_(cores) {}

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
    const Turn turn(cores_);
    inner_->forward(batch, input, output, workspace);
  }
  void backward(const ExpertBatch& batch, const SplitRows& input, const SplitRows& grad_output,
                std::span<const float> weight, const SplitSums& grad_input, std::span<float> grad_weight,
                std::span<std::byte> workspace) const override {
    const Turn turn(cores_);
    inner_->backward(batch, input, grad_output, weight, grad_input, grad_weight, workspace);
  }

 private:
  using Cores = std::counting_semaphore<>;
  struct Turn {
    explicit Turn(Cores& of) : cores(of) { cores.acquire(); }
    ~Turn() { cores.release(); }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    Cores& cores;
  };

  std::shared_ptr<const ExpertFfn> inner_;
  mutable Cores cores_;
};

}  // namespace

std::shared_ptr<const ExpertFfn> in_turns(std::shared_ptr<const ExpertFfn> inner, int cores) {
  return std::make_shared<InTurns>(std::move(inner), cores);
}

}  // namespace evenkeel::internal
