#include "tests/layer/error_bound.h"

#include <algorithm>
#include <cmath>

namespace evenkeel::testing {

namespace {

using Numbers = std::vector<double>;

double value(const void* data, std::int64_t i, DataType type) {
  if (type == DataType::f32) return static_cast<double>(static_cast<const float*>(data)[i]);
  return static_cast<double>(static_cast<float>(static_cast<const bf16*>(data)[i]));
}

double f(Activation activation, double gate, double up) {
  if (activation == Activation::gelu) return 0.5 * up * (1.0 + std::erf(up / std::sqrt(2.0)));
  if (activation == Activation::swiglu) return gate / (1.0 + std::exp(-gate)) * up;
  const double g = std::min(gate, 7.0);
  return g / (1.0 + std::exp(-1.702 * g)) * (std::clamp(up, -7.0, 7.0) + 1.0);
}

class Bound {
 public:
  Bound(const MoeCase& problem, bool backward)
      : problem_(problem), shape_(problem.shape().moe.expert), backward_(backward) {
    const auto tokens = static_cast<std::size_t>(problem.all_tokens());
    bound_.output.resize(tokens * D());
    if (!backward) return;
    bound_.grad_hidden.resize(tokens * D());
    bound_.grad_router_weights.resize(problem.top_k().experts.size());
    bound_.grad_experts.resize(static_cast<std::size_t>(problem.shape().moe.num_experts));
    for (auto& expert : bound_.grad_experts) {
      expert.gate_up.resize(W() * D());
      expert.down.resize(D() * F());
      expert.gate_up_bias.resize(W());
      expert.down_bias.resize(D());
    }
  }

  DenseResult run() {
    const TopK top_k = problem_.top_k();
    for (std::size_t a = 0; a < top_k.experts.size(); ++a)
      if (top_k.experts[a] >= 0) add(a, static_cast<std::size_t>(top_k.experts[a]));
    scale(bound_.output, std::max(D(), F()));
    scale(bound_.grad_hidden, std::max(D(), W()));
    scale(bound_.grad_router_weights, std::max(D(), F()));
    for (std::size_t e = 0; e < bound_.grad_experts.size(); ++e) {
      const auto rows =
          static_cast<std::size_t>(std::ranges::count(top_k.experts, static_cast<std::int32_t>(e)));
      DenseResult::Expert& expert = bound_.grad_experts[e];
      for (Numbers* numbers : {&expert.gate_up, &expert.down, &expert.gate_up_bias})
        scale(*numbers, std::max(D(), rows));
      scale(expert.down_bias, rows);
    }
    return std::move(bound_);
  }

 private:
  std::size_t D() const { return static_cast<std::size_t>(shape_.hidden); }
  std::size_t F() const { return static_cast<std::size_t>(shape_.intermediate); }
  std::size_t W() const { return static_cast<std::size_t>(shape_.gate_up_rows()); }
  // Turns magnitudes into bounds; `terms` is the length of the longest sum.
  void scale(Numbers& magnitudes, std::size_t terms) const {
    const double unit = shape_.type == DataType::f32 ? 0x1p-24 : 0x1p-8;
    for (double& magnitude : magnitudes) magnitude *= 4 * unit * std::sqrt(static_cast<double>(terms));
  }

  double element(const void* data, std::size_t i) const {
    return value(data, static_cast<std::int64_t>(i), shape_.type);
  }

  // Computes the exact value and the magnitude of each pre-activation of a token.
  void pre_activations(const ExpertWeights& weights, std::size_t token, Numbers& exact,
                       Numbers& magnitude) const {
    const void* x = problem_.hidden(static_cast<std::int64_t>(token), 1).data;
    for (std::size_t r = 0; r < W(); ++r) {
      exact[r] = shape_.biases ? element(weights.gate_up_bias, r) : 0.0;
      magnitude[r] = std::abs(exact[r]);
      for (std::size_t d = 0; d < D(); ++d) {
        const double term = element(weights.gate_up, r * D() + d) * element(x, d);
        exact[r] += term;
        magnitude[r] += std::abs(term);
      }
    }
  }

  // One activation h: its magnitude, and the factors that backward needs.
  struct Inner {
    double h_magnitude = 0;
    double gate_slope = 0, up_slope = 0;      // |df/dgate|, |df/dup|
    double gate_bending = 0, up_bending = 0;  // change of slopes due to pre-activations' errors
  };

  Inner inner(const Numbers& exact, const Numbers& magnitude, std::size_t i) const {
    const bool gated = shape_.activation != Activation::gelu;
    const double gate = gated ? exact[i] : 0.0, up = exact[gated ? F() + i : i];
    const double gate_m = gated ? magnitude[i] : 0.0, up_m = magnitude[gated ? F() + i : i];
    const auto at = [&](double dg, double du) { return f(shape_.activation, gate + dg, up + du); };
    constexpr double s = 1e-4;
    const double by_gg = std::abs(at(s, 0) - 2 * at(0, 0) + at(-s, 0)) / (s * s);
    const double by_uu = std::abs(at(0, s) - 2 * at(0, 0) + at(0, -s)) / (s * s);
    const double by_gu = std::abs(at(s, s) - at(s, -s) - at(-s, s) + at(-s, -s)) / (4 * s * s);
    Inner inner;
    inner.gate_slope = std::abs(at(s, 0) - at(-s, 0)) / (2 * s);
    inner.up_slope = std::abs(at(0, s) - at(0, -s)) / (2 * s);
    inner.h_magnitude = std::abs(at(0, 0)) + inner.gate_slope * gate_m + inner.up_slope * up_m;
    inner.gate_bending = by_gg * gate_m + by_gu * up_m;
    inner.up_bending = by_gu * gate_m + by_uu * up_m;
    return inner;
  }

  void add(std::size_t a, std::size_t expert) {
    const std::size_t token = a / static_cast<std::size_t>(problem_.shape().moe.top_k);
    const double weight = static_cast<double>(problem_.top_k().weights[a]);
    const ExpertWeights& weights = problem_.weights()[expert];
    Numbers exact(W()), magnitude(W());
    pre_activations(weights, token, exact, magnitude);
    std::vector<Inner> hidden(F());
    for (std::size_t i = 0; i < F(); ++i) hidden[i] = inner(exact, magnitude, i);
    for (std::size_t d = 0; d < D(); ++d) {
      double sum = shape_.biases ? std::abs(element(weights.down_bias, d)) : 0.0;
      for (std::size_t i = 0; i < F(); ++i)
        sum += std::abs(element(weights.down, d * F() + i)) * hidden[i].h_magnitude;
      bound_.output[token * D() + d] += weight * sum;
    }
    if (backward_) add_backward(a, token, expert, weight, hidden);
  }

  void add_backward(std::size_t a, std::size_t token, std::size_t expert, double weight,
                    const std::vector<Inner>& hidden) {
    const ExpertWeights& weights = problem_.weights()[expert];
    const void* x = problem_.hidden(static_cast<std::int64_t>(token), 1).data;
    const void* g = problem_.grad_output(static_cast<std::int64_t>(token), 1).data;
    DenseResult::Expert& grad = bound_.grad_experts[expert];
    Numbers grad_pre(W());
    for (std::size_t i = 0; i < F(); ++i) {
      double grad_h = 0;
      for (std::size_t d = 0; d < D(); ++d) {
        const double g_d = std::abs(element(g, d));
        grad_h += g_d * std::abs(element(weights.down, d * F() + i));
        grad.down[d * F() + i] += weight * g_d * hidden[i].h_magnitude;
      }
      bound_.grad_router_weights[a] += grad_h * hidden[i].h_magnitude;
      const bool gated = shape_.activation != Activation::gelu;
      if (gated) grad_pre[i] = weight * grad_h * (hidden[i].gate_slope + hidden[i].gate_bending);
      grad_pre[gated ? F() + i : i] = weight * grad_h * (hidden[i].up_slope + hidden[i].up_bending);
    }
    for (std::size_t d = 0; d < D(); ++d) {
      grad.down_bias[d] += weight * std::abs(element(g, d));
      if (shape_.biases)
        bound_.grad_router_weights[a] += std::abs(element(g, d) * element(weights.down_bias, d));
      for (std::size_t r = 0; r < W(); ++r) {
        bound_.grad_hidden[token * D() + d] += grad_pre[r] * std::abs(element(weights.gate_up, r * D() + d));
        grad.gate_up[r * D() + d] += grad_pre[r] * std::abs(element(x, d));
      }
    }
    for (std::size_t r = 0; r < W(); ++r) grad.gate_up_bias[r] += grad_pre[r];
  }

  const MoeCase& problem_;
  const ExpertShape& shape_;
  bool backward_;
  DenseResult bound_;
};

}  // namespace

DenseResult error_bound(const MoeCase& problem, bool backward) {
  return Bound(problem, backward).run();
}

}  // namespace evenkeel::testing
