#include "evenkeel/compute/cpu/expert_ffn.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <tuple>

#include "evenkeel/base/check.h"
#include "evenkeel/base/error.h"
#include "evenkeel/compute/cpu/internal/activation.h"
#include "evenkeel/compute/cpu/internal/gradient_product.h"
#include "evenkeel/compute/cpu/internal/row_ladder.h"
#include "evenkeel/device/cpu/rows.h"

namespace evenkeel {

namespace {

using internal::GradientProduct;
using internal::RowLadder;
using rows::at;

constexpr std::int64_t kTileRows = RowLadder::kMaxRows;

constexpr std::int64_t aligned(std::int64_t bytes) {
  return (bytes + 63) / 64 * 64;
}

// Cuts a workspace into pieces, or only adds them up.
class Carver {
 public:
  explicit Carver(std::byte* base) : base_(base) {}
  std::byte* bytes(std::int64_t count) {
    std::byte* piece = base_ == nullptr ? nullptr : base_ + used_;
    used_ += aligned(count);
    return piece;
  }
  float* floats(std::int64_t count) { return reinterpret_cast<float*>(bytes(count * 4)); }
  std::int64_t used() const { return used_; }

 private:
  std::byte* base_;
  std::int64_t used_ = 0;
};

// What a backward pass multiplies, beside forward's two products.
struct BackwardProducts {
  BackwardProducts(const ExpertShape& s)
      : grad_h(s.hidden, s.intermediate, s.type, RowLadder::Plain::in_by_out, RowLadder::Bits::any),
        grad_x(s.gate_up_rows(), s.hidden, s.type, RowLadder::Plain::in_by_out, RowLadder::Bits::any),
        grad_gate_up(s.gate_up_rows(), s.hidden, s.type),
        grad_down(s.hidden, s.intermediate, s.type) {}

  RowLadder grad_h;  // G [m, D] down [D, F]
  RowLadder grad_x;  // grad_pre [m, 2F] gate_up [2F, D]
  GradientProduct grad_gate_up;
  GradientProduct grad_down;
};

struct ForwardTile {
  ForwardTile(Carver& carver, const ExpertShape& s, std::int64_t scratch_bytes, std::int64_t packed_bytes)
      : x(carver.bytes(kTileRows * s.hidden * bytes_of(s.type))),
        pre(carver.floats(kTileRows * s.gate_up_rows())),
        h(carver.bytes(kTileRows * s.intermediate * bytes_of(s.type))),
        h_row(carver.floats(s.intermediate)),
        gate_up_bias(carver.floats(s.biases ? s.gate_up_rows() : 0)),
        down_bias(carver.floats(s.biases ? s.hidden : 0)),
        y(carver.floats(kTileRows * s.hidden)),
        scratch(carver.bytes(scratch_bytes)),
        packed(carver.bytes(packed_bytes)) {}

  std::byte* x;
  float* pre;
  std::byte* h;
  float *h_row, *gate_up_bias, *down_bias, *y;
  std::byte *scratch, *packed;
};

struct BackwardTile {
  BackwardTile(Carver& carver, const ExpertShape& s, std::int64_t scratch_bytes, std::int64_t packed_bytes)
      : x(carver.bytes(kTileRows * s.hidden * bytes_of(s.type))),
        g(carver.bytes(kTileRows * s.hidden * bytes_of(s.type))),
        grad_h(carver.floats(kTileRows * s.intermediate)),
        weighted_h(carver.bytes(kTileRows * s.intermediate * bytes_of(s.type))),
        grad_pre(carver.bytes(kTileRows * s.gate_up_rows() * bytes_of(s.type))),
        grad_x(carver.floats(kTileRows * s.hidden)),
        pre_row(carver.floats(s.gate_up_rows())),
        h_row(carver.floats(s.intermediate)),
        grad_pre_row(carver.floats(s.gate_up_rows())),
        g_row(carver.floats(s.hidden)),
        down_bias(carver.floats(s.biases ? s.hidden : 0)),
        scratch(carver.bytes(scratch_bytes)),
        packed(carver.bytes(packed_bytes)) {}

  std::byte *x, *g;
  float* grad_h;
  std::byte *weighted_h, *grad_pre;
  float *grad_x, *pre_row, *h_row, *grad_pre_row, *g_row, *down_bias;
  std::byte *scratch, *packed;
};

// Positions [begin, end) of a group, at most a tile.
struct Span {
  std::int64_t begin;
  std::int64_t rows;
};

// Cuts a group into equal tiles, so that no tile is a small remainder.
template <class Body>
void for_each_tile(const ExpertGroup& group, std::int64_t most, const Body& body) {
  const std::int64_t rows = group.end - group.begin;
  const std::int64_t tiles = (rows + most - 1) / most;
  for (std::int64_t t = 0; t < tiles; ++t) {
    const std::int64_t first = group.begin + rows * t / tiles;
    body(Span{first, group.begin + rows * (t + 1) / tiles - first});
  }
}

class CpuExpertFfn final : public ExpertFfn {
 public:
  CpuExpertFfn(const ExpertShape& shape, bool with_backward)
      : shape_(shape),
        gate_up_(shape.hidden, shape.gate_up_rows(), shape.type, RowLadder::Plain::out_by_in,
                 RowLadder::Bits::of_the_row_alone),
        down_(shape.intermediate, shape.hidden, shape.type, RowLadder::Plain::out_by_in,
              RowLadder::Bits::of_the_row_alone) {
    if (with_backward) backward_.emplace(shape);
    bitwise_.holds = gate_up_.bitwise() && down_.bitwise();
    if (!bitwise_.holds)
      bitwise_.reason = "this CPU's products give a row other bits at another position or row count";
    bitwise_.fingerprint = gate_up_.fingerprint() * 31 + down_.fingerprint();
  }

  const ExpertShape& shape() const override { return shape_; }
  const BitwiseReport& bitwise() const override { return bitwise_; }

  std::int64_t prepared_bytes(Pass pass) const override {
    const auto [first, second] = products(pass);
    return aligned(first->packed_bytes()) + aligned(second->packed_bytes());
  }

  void prepare(const ExpertWeights& weights, Pass pass, std::span<std::byte> prepared) const override {
    const auto [gate_up, down] = products(pass);
    gate_up->pack(weights.gate_up, prepared.data());
    down->pack(weights.down, prepared.data() + aligned(gate_up->packed_bytes()));
  }

  std::int64_t workspace_bytes(Pass pass) const override {
    Carver carver(nullptr);
    if (pass == Pass::forward)
      ForwardTile(carver, shape_, scratch_bytes(pass), prepared_bytes(pass));
    else
      BackwardTile(carver, shape_, scratch_bytes(pass), prepared_bytes(pass));
    return carver.used();
  }

  std::int64_t saved_bytes_per_position() const override {
    return shape_.gate_up_rows() * bytes_of(shape_.type);
  }

  void forward(const ExpertBatch& batch, const void* input, void* output, std::span<std::byte> saved,
               std::span<std::byte> workspace) const override {
    Carver carver(workspace.data());
    const ForwardTile tile(carver, shape_, scratch_bytes(Pass::forward), prepared_bytes(Pass::forward));
    EVENKEEL_CHECK(carver.used() <= static_cast<std::int64_t>(workspace.size()));
    for (const ExpertGroup& group : batch.groups) {
      if (group.begin == group.end) continue;
      const std::byte* prepared = prepared_or_pack(group, Pass::forward, tile.packed);
      load_biases(group.weights, tile.gate_up_bias, tile.down_bias);
      for_each_tile(group, std::min(gate_up_.max_rows(), down_.max_rows()), [&](Span span) {
        rows::gather(span.rows, &batch.input_row[static_cast<std::size_t>(span.begin)], shape_.hidden, input,
                     tile.x, shape_.type);
        gate_up_.run(span.rows, tile.x, prepared, tile.pre, tile.scratch);
        activate_tile(span, tile, saved);
        down_.run(span.rows, tile.h, prepared + aligned(gate_up_.packed_bytes()), tile.y, tile.scratch);
        write_output(batch, span, tile, output);
      });
    }
  }

  void backward(const ExpertBatch& batch, const void* input, const void* grad_output,
                std::span<const float> weight, std::span<const std::byte> saved, float* grad_input,
                std::span<float> grad_weight, std::span<std::byte> workspace) const override {
    EVENKEEL_CHECK(backward_.has_value());
    Carver carver(workspace.data());
    const BackwardTile tile(carver, shape_, scratch_bytes(Pass::backward), prepared_bytes(Pass::backward));
    EVENKEEL_CHECK(carver.used() <= static_cast<std::int64_t>(workspace.size()));
    for (const ExpertGroup& group : batch.groups) {
      if (group.begin == group.end) continue;
      const std::byte* prepared = prepared_or_pack(group, Pass::backward, tile.packed);
      load_biases(group.weights, nullptr, tile.down_bias);
      for_each_tile(
          group, std::min(backward_->grad_h.max_rows(), backward_->grad_x.max_rows()), [&](Span span) {
            const auto* from = &batch.input_row[static_cast<std::size_t>(span.begin)];
            rows::gather(span.rows, from, shape_.hidden, input, tile.x, shape_.type);
            rows::gather(span.rows, from, shape_.hidden, grad_output, tile.g, shape_.type);
            backward_->grad_h.run(span.rows, tile.g, prepared + aligned(backward_->grad_x.packed_bytes()),
                                  tile.grad_h, tile.scratch);
            differentiate_tile(batch, group, span, tile, weight, saved, grad_weight);
            backward_->grad_x.run(span.rows, tile.grad_pre, prepared, tile.grad_x, tile.scratch);
            for (std::int64_t i = 0; i < span.rows; ++i)
              rows::add_scaled(shape_.hidden, tile.grad_x + i * shape_.hidden, 1.0f,
                               grad_input + from[i] * shape_.hidden);
            add_weight_gradients(group, span, tile);
          });
    }
  }

 private:
  // gate_up's product, then down's, as prepared weights are ordered.
  std::pair<const RowLadder*, const RowLadder*> products(Pass pass) const {
    if (pass == Pass::forward) return {&gate_up_, &down_};
    EVENKEEL_CHECK(backward_.has_value());
    return {&backward_->grad_x, &backward_->grad_h};
  }

  std::int64_t scratch_bytes(Pass pass) const {
    if (pass == Pass::forward) return std::max(gate_up_.scratch_bytes(), down_.scratch_bytes());
    return std::max({backward_->grad_h.scratch_bytes(), backward_->grad_x.scratch_bytes(),
                     backward_->grad_gate_up.scratch_bytes(), backward_->grad_down.scratch_bytes()});
  }

  const std::byte* prepared_or_pack(const ExpertGroup& group, Pass pass, std::byte* packed) const {
    if (group.prepared != nullptr) return group.prepared;
    prepare(group.weights, pass, {packed, static_cast<std::size_t>(prepared_bytes(pass))});
    return packed;
  }

  void load_biases(const ExpertWeights& weights, float* gate_up_bias, float* down_bias) const {
    if (!shape_.biases) return;
    if (gate_up_bias != nullptr)
      rows::to_f32(shape_.gate_up_rows(), weights.gate_up_bias, shape_.type, gate_up_bias);
    rows::to_f32(shape_.hidden, weights.down_bias, shape_.type, down_bias);
  }

  void activate_tile(Span span, const ForwardTile& tile, std::span<std::byte> saved) const {
    const std::int64_t width = shape_.gate_up_rows();
    const std::int64_t inner = shape_.intermediate;
    for (std::int64_t i = 0; i < span.rows; ++i) {
      float* pre = tile.pre + i * width;
      if (shape_.biases) rows::add_scaled(width, tile.gate_up_bias, 1.0f, pre);
      if (!saved.empty()) save(pre, at(saved.data(), (span.begin + i) * width, shape_.type));
      std::byte* h = at(tile.h, i * inner, shape_.type);
      const bool direct = shape_.type == DataType::f32;
      internal::activate(shape_.activation, inner, pre, direct ? reinterpret_cast<float*>(h) : tile.h_row);
      if (!direct) rows::from_f32(inner, tile.h_row, h, shape_.type);
    }
  }

  // Rounds a row of pre-activations for backward. Rounding must not carry one over the clamp's limit, where
  // the derivative jumps.
  void save(float* pre, std::byte* saved) const {
    const std::int64_t width = shape_.gate_up_rows();
    if (shape_.type == DataType::bf16 && shape_.activation == Activation::clamped_swiglu)
      internal::keep_beyond_limit(shape_.intermediate, pre);
    rows::from_f32(width, pre, saved, shape_.type);
  }

  void write_output(const ExpertBatch& batch, Span span, const ForwardTile& tile, void* output) const {
    for (std::int64_t i = 0; i < span.rows; ++i) {
      float* y = tile.y + i * shape_.hidden;
      if (shape_.biases) rows::add_scaled(shape_.hidden, tile.down_bias, 1.0f, y);
      const std::int64_t row = batch.output_row[static_cast<std::size_t>(span.begin + i)];
      rows::from_f32(shape_.hidden, y, at(output, row * shape_.hidden, shape_.type), shape_.type);
    }
  }

  // From G and d(y . G)/dh: the gradient of the pre-activations and of the row's weight, and weight * h.
  void differentiate_tile(const ExpertBatch& batch, const ExpertGroup& group, Span span,
                          const BackwardTile& tile, std::span<const float> weight,
                          std::span<const std::byte> saved, std::span<float> grad_weight) const {
    const std::int64_t width = shape_.gate_up_rows();
    const std::int64_t inner = shape_.intermediate;
    for (std::int64_t i = 0; i < span.rows; ++i) {
      const auto row = static_cast<std::size_t>(batch.output_row[static_cast<std::size_t>(span.begin + i)]);
      float* grad_h = tile.grad_h + i * inner;
      rows::to_f32(width, at(saved.data(), (span.begin + i) * width, shape_.type), shape_.type, tile.pre_row);
      internal::activate_backward(shape_.activation, inner, tile.pre_row, grad_h, tile.h_row,
                                  tile.grad_pre_row);
      grad_weight[row] = rows::dot(inner, tile.h_row, grad_h);
      rows::scale(inner, weight[row], tile.h_row);
      rows::scale(width, weight[row], tile.grad_pre_row);
      rows::from_f32(inner, tile.h_row, at(tile.weighted_h, i * inner, shape_.type), shape_.type);
      rows::from_f32(width, tile.grad_pre_row, at(tile.grad_pre, i * width, shape_.type), shape_.type);
      if (shape_.biases) {
        rows::to_f32(shape_.hidden, at(tile.g, i * shape_.hidden, shape_.type), shape_.type, tile.g_row);
        grad_weight[row] += rows::dot(shape_.hidden, tile.down_bias, tile.g_row);
        rows::add_scaled(shape_.hidden, tile.g_row, weight[row], group.gradients.down_bias);
        rows::add_scaled(width, tile.grad_pre_row, 1.0f, group.gradients.gate_up_bias);
      }
    }
  }

  void add_weight_gradients(const ExpertGroup& group, Span span, const BackwardTile& tile) const {
    const std::int64_t padded = GradientProduct::padded(span.rows);
    const auto clear_padding = [&](std::byte* rows, std::int64_t width) {
      std::memset(at(rows, span.rows * width, shape_.type), 0,
                  static_cast<std::size_t>((padded - span.rows) * width * bytes_of(shape_.type)));
    };
    clear_padding(tile.x, shape_.hidden);
    clear_padding(tile.g, shape_.hidden);
    clear_padding(tile.weighted_h, shape_.intermediate);
    clear_padding(tile.grad_pre, shape_.gate_up_rows());
    backward_->grad_down.add(span.rows, tile.g, tile.weighted_h, group.gradients.down, tile.scratch);
    backward_->grad_gate_up.add(span.rows, tile.grad_pre, tile.x, group.gradients.gate_up, tile.scratch);
  }

  ExpertShape shape_;
  RowLadder gate_up_;
  RowLadder down_;
  std::optional<BackwardProducts> backward_;
  BitwiseReport bitwise_;
};

void require_shape(const ExpertShape& shape) {
  constexpr std::int64_t kMost = 1 << 20;
  if (shape.hidden < 1 || shape.hidden > kMost)
    throw InvalidArgument("hidden", fmt::format("{}", shape.hidden), fmt::format("1..{}", kMost));
  if (shape.intermediate < 1 || shape.intermediate > kMost)
    throw InvalidArgument("intermediate", fmt::format("{}", shape.intermediate), fmt::format("1..{}", kMost));
  // oneDNN 2.6 makes such products with an AMX instruction that the CPU refuses (SIGILL).
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
    throw Unsupported(
        fmt::format("oneDNN cannot multiply {} on this CPU: {}", name_of(shape.type), error.what()));
  }
  return ffn;
}

}  // namespace evenkeel
