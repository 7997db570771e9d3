#include "evenkeel/compute/cpu/expert_ffn.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <new>
#include <optional>
#include <tuple>

#include "evenkeel/base/check.h"
#include "evenkeel/base/error.h"
#include "evenkeel/compute/cpu/internal/expert_backward.h"
#include "evenkeel/compute/cpu/internal/expert_forward.h"
#include "evenkeel/compute/cpu/internal/inner_products.h"
#include "evenkeel/compute/cpu/internal/tile.h"

namespace evenkeel {

namespace {

using internal::BackwardRows;
using internal::ExpertBackward;
using internal::ExpertForward;
using internal::InnerProducts;

class CpuExpertFfn final : public ExpertFfn {
 public:
  CpuExpertFfn(const ExpertShape& shape, bool with_backward)
      : shape_(shape), inner_(shape), forward_(shape, inner_) {
    if (with_backward) backward_.emplace(shape, inner_);
    bitwise_.holds = inner_.ladder().bitwise() && forward_.down().bitwise();
    if (!bitwise_.holds)
      bitwise_.reason = "on this CPU a row's products can have other bits at another position or row count";
    bitwise_.fingerprint = inner_.ladder().fingerprint() * 31 + forward_.down().fingerprint();
  }

  const ExpertShape& shape() const override { return shape_; }
  const BitwiseReport& bitwise() const override { return bitwise_; }

  std::int64_t prepared_bytes(Pass pass) const override {
    if (pass == Pass::backward) return backward().prepared_bytes();
    return pass == Pass::recompute ? inner_.prepared_bytes() : forward_.prepared_bytes();
  }

  void prepare(const ExpertWeights& weights, Pass pass, std::span<std::byte> prepared) const override {
    EVENKEEL_CHECK(static_cast<std::int64_t>(prepared.size()) >= prepared_bytes(pass));
    if (pass == Pass::backward)
      backward().prepare(weights, prepared.data());
    else if (pass == Pass::recompute)
      inner_.prepare(weights, prepared.data());
    else
      forward_.prepare(weights, prepared.data());
  }

  std::int64_t workspace_bytes(Pass pass) const override {
    if (pass == Pass::forward) return forward_.workspace_bytes();
    return backward().workspace_bytes(pass == Pass::recompute);
  }
  std::int64_t least_workspace_bytes(Pass pass) const override {
    if (pass == Pass::forward) return forward_.least_workspace_bytes();
    return backward().least_workspace_bytes(pass == Pass::recompute);
  }

  std::int64_t saved_bytes_per_position() const override {
    return shape_.gate_up_rows() * bytes_of(shape_.type);
  }
  std::int64_t saved_margin_bytes() const override { return internal::margin_bytes(shape_); }

  void forward(const ExpertBatch& batch, const SplitRows& input, void* output,
               std::span<std::byte> workspace) const override {
    require_space(workspace, Pass::forward);
    forward_.run(batch, input, output, workspace);
  }

  void backward(const ExpertBatch& batch, const SplitRows& input, const SplitRows& grad_output,
                std::span<const float> weight, const SplitSums& grad_input, std::span<float> grad_weight,
                std::span<std::byte> workspace) const override {
    const bool recompute = std::ranges::count(batch.groups, nullptr, &ExpertGroup::saved) > 0;
    require_space(workspace, recompute ? Pass::recompute : Pass::backward);
    backward().run(batch, {input, grad_output, weight, grad_input, grad_weight}, recompute, workspace);
  }

 private:
  const ExpertBackward& backward() const {
    EVENKEEL_CHECK(backward_.has_value());
    return *backward_;
  }
  void require_space(std::span<std::byte> workspace, Pass pass) const {
    EVENKEEL_CHECK(std::ssize(workspace) >= least_workspace_bytes(pass));
  }

  ExpertShape shape_;
  InnerProducts inner_;
  ExpertForward forward_;
  std::optional<ExpertBackward> backward_;
  BitwiseReport bitwise_;
};

void require_shape(const ExpertShape& shape) {
  require_sizes(shape);
  // For such products oneDNN 2.6 generates an AMX instruction that the CPU rejects (SIGILL).
  constexpr std::int64_t kFatalInner = 63;
  if (shape.type == DataType::bf16 && (shape.hidden == kFatalInner || shape.intermediate == kFatalInner))
    throw Unsupported(
        "oneDNN cannot multiply bf16 rows of 63 elements; take another hidden or intermediate size");
}

}  // namespace

std::shared_ptr<const ExpertFfn> make_cpu_expert_ffn(const ExpertShape& shape, bool with_backward) {
  using Key = std::tuple<std::int64_t, std::int64_t, Activation, bool, DataType, bool>;
  static std::mutex mutex;
  static std::map<Key, std::weak_ptr<const ExpertFfn>> made;

  require_shape(shape);
  const std::lock_guard lock(mutex);
  auto& cached =
      made[{shape.hidden, shape.intermediate, shape.activation, shape.biases, shape.type, with_backward}];
  std::shared_ptr<const ExpertFfn> ffn = cached.lock();
  try {
    if (ffn == nullptr) cached = ffn = std::make_shared<CpuExpertFfn>(shape, with_backward);
  } catch (const dnnl::error& error) {
    if (error.status == dnnl_out_of_memory) throw std::bad_alloc();
    throw Unsupported(
        fmt::format("oneDNN cannot multiply {} on this CPU: {}", name_of(shape.type), error.what()));
  }
  return ffn;
}

}  // namespace evenkeel
