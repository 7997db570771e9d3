// One rank's layer of a MoeCase, with memory for its output and gradients. Runs single steps, for tests that
// check how steps run rather than their numbers.
#pragma once

#include <vector>

#include "tests/layer/moe_case.h"

namespace evenkeel::testing {

class RankLayer {
 public:
  RankLayer(const MoeCase& problem, Communicator& comm, Arena& arena, MoeOptions options = {});

  MoeLayer& layer() { return layer_; }
  // The case's choices on this rank. The functions below also take other choices, with at most as many
  // tokens.
  TopK top_k() const { return problem_.top_k_of(rank_); }

  ForwardState forward() { return forward(top_k()); }
  ForwardState forward(const TopK& top_k) {
    return layer_.forward(hidden(top_k.tokens), top_k, output(top_k.tokens));
  }
  void backward(ForwardState state) { backward(std::move(state), top_k()); }
  void backward(ForwardState state, const TopK& top_k) {
    layer_.backward(std::move(state), grad_output(top_k.tokens), gradients(top_k.tokens));
  }
  void step() { step(top_k()); }
  void step(const TopK& top_k) { backward(forward(top_k), top_k); }

  ConstRows hidden(std::int64_t tokens) const { return problem_.hidden(first_, tokens); }
  ConstRows grad_output(std::int64_t tokens) const { return problem_.grad_output(first_, tokens); }
  Rows output(std::int64_t tokens) { return {output_.data(), tokens, expert().hidden, expert().type}; }
  MoeGradients gradients(std::int64_t tokens);
  const Tensor& output() const { return output_; }
  const Tensor& grad_hidden() const { return grad_hidden_; }
  // Gradients by native expert.
  const std::vector<std::vector<float>>& grad_experts() const { return grad_experts_; }

 private:
  const ExpertShape& expert() const { return problem_.shape().moe.expert; }

  const MoeCase& problem_;
  int rank_;
  std::int64_t first_;
  MoeLayer layer_;
  Tensor output_, grad_hidden_;
  std::vector<float> grad_router_weights_;
  std::vector<std::vector<float>> grad_experts_;  // [native expert]: all its tensors joined
  std::vector<ExpertGradients> gradients_;
};

}  // namespace evenkeel::testing
