// The interface for an expert's feed-forward network on groups of rows, forward and backward. compute/cpu has
// the library's own implementation for CPUs; users can pass theirs to the layer.
//
//   swiglu           h = silu(gate x) * (up x)                                y = down h
//   clamped_swiglu   g = min(gate x, limit), u = clamp(up x, -limit, limit)
//                    h = g sigmoid(alpha g) * (u + 1)                         y = down h     (gpt-oss)
//   gelu             h = Phi(up x) * (up x), Phi exact                        y = down h
//
// Weights    gate_up [2 F, D], gate rows first, then up rows ([F, D] for gelu); down [D, F]; with biases
//            gate_up_bias [2 F] and down_bias [D]. Row-major, of the layer's type.
// Rounding   Products are accumulated in f32; an expert's output row is rounded once to the type.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "evenkeel/base/data_type.h"
#include "evenkeel/base/matrix_view.h"

namespace evenkeel {

enum class Activation { swiglu, clamped_swiglu, gelu };

// Whether the activation has a gate besides up.
constexpr bool is_gated(Activation activation) {
  return activation != Activation::gelu;
}
std::string_view name_of(Activation activation);
// Throws InvalidArgument for an unknown name.
Activation parse_activation(std::string_view name);

struct ExpertShape {
  std::int64_t hidden = 0;        // D
  std::int64_t intermediate = 0;  // F
  Activation activation = Activation::swiglu;
  bool biases = false;
  DataType type = DataType::f32;

  // Rows of gate_up: 2 F for the gated activations, F for gelu.
  std::int64_t gate_up_rows() const { return is_gated(activation) ? 2 * intermediate : intermediate; }
  std::int64_t elements() const {
    return (gate_up_rows() + intermediate) * hidden + (biases ? gate_up_rows() + hidden : 0);
  }
  std::int64_t weight_bytes() const { return elements() * bytes_of(type); }
  friend bool operator==(const ExpertShape&, const ExpertShape&) = default;
};

// Throws InvalidArgument for a shape without rows or columns, or with more than 2^20 of them.
void require_sizes(const ExpertShape& shape);

// One expert's weights. Bias pointers are null without biases.
struct ExpertWeights {
  const void* gate_up = nullptr;
  const void* down = nullptr;
  const void* gate_up_bias = nullptr;
  const void* down_bias = nullptr;
};

// One expert's gradients: f32, in the layout of ExpertWeights. Backward adds to them.
struct ExpertGradients {
  float* gate_up = nullptr;
  float* down = nullptr;
  float* gate_up_bias = nullptr;
  float* down_bias = nullptr;

  friend bool operator==(const ExpertGradients&, const ExpertGradients&) = default;
};

// The rows that one expert works on: positions [begin, end) of the batch.
struct ExpertGroup {
  const std::byte* prepared = nullptr;  // output of prepare() for forward or backward
  ExpertGradients gradients;            // backward only
  std::int64_t begin = 0;
  std::int64_t end = 0;
  const std::byte* recompute_prepared = nullptr;  // for recompute; only in backward if nothing was saved
  // Null, or space for saved_bytes_per_position() per row, followed by a margin of saved_margin_bytes().
  // Forward fills the space and backward overwrites it. Both leave the margin unchanged, since it may hold
  // another group's rows.
  std::byte* saved = nullptr;
};

// Positions are assignments. Several may read the same input row, but each writes its own output row.
struct ExpertBatch {
  std::span<const ExpertGroup> groups;
  std::span<const std::int32_t> input_row;   // by position
  std::span<const std::int32_t> output_row;  // by position
};

// recompute is a backward pass with groups for which nothing was saved.
enum class Pass { forward, backward, recompute };

// Whether, on this machine, a row's output bits depend only on that row, not on what is computed with it.
struct BitwiseReport {
  bool holds = false;
  std::string reason;             // if not, why
  std::uint64_t fingerprint = 0;  // equal on machines that produce the same bits
};

class ExpertFfn {
 public:
  virtual ~ExpertFfn() = default;
  virtual const ExpertShape& shape() const = 0;

  // Prepared weights of one expert: a copy of everything that a pass needs, in the layout that its products
  // need. A backward pass that recomputes needs both the copy for backward and the copy for recompute. The
  // copy for forward begins with the bytes of the copy for recompute. A null tensor leaves its bytes
  // unchanged, so weights may arrive one tensor at a time.
  virtual std::int64_t prepared_bytes(Pass pass) const = 0;
  virtual void prepare(const ExpertWeights& weights, Pass pass, std::span<std::byte> prepared) const = 0;

  // Bytes of workspace for a call, independent of the number of rows: the amount for full speed, and the
  // least that works. Any amount from the least on is accepted. It affects only the last bits of gradients.
  virtual std::int64_t workspace_bytes(Pass pass) const = 0;
  virtual std::int64_t least_workspace_bytes(Pass pass) const { return workspace_bytes(pass); }
  // Bytes that forward saves for backward per position, and the margin needed after the saved bytes of all of
  // a batch's positions.
  virtual std::int64_t saved_bytes_per_position() const = 0;
  virtual std::int64_t saved_margin_bytes() const = 0;

  // output[output_row[i]] = expert(input[input_row[i]]) for all positions i of the groups. `input` and
  // `output` are rows of D elements of the shape's type.
  virtual void forward(const ExpertBatch& batch, const SplitRows& input, void* output,
                       std::span<std::byte> workspace) const = 0;

  // Gradients of the sum over positions of weight[output_row[i]] * y_i, with G = grad_output[input_row[i]]:
  //   grad_input[input_row[i]]       += weight * d(y_i . G) / dx       f32 rows
  //   grad_weight[output_row[i]]      = y_i . G
  //   group.gradients                += weight * d(y_i . G) / dweights
  // If a group has nothing saved, backward recomputes what forward would have saved, tile by tile. The bits
  // are the same if bitwise() holds. `workspace` must then have the size for Pass::recompute.
  virtual void backward(const ExpertBatch& batch, const SplitRows& input, const SplitRows& grad_output,
                        std::span<const float> weight, const SplitSums& grad_input,
                        std::span<float> grad_weight, std::span<std::byte> workspace) const = 0;

  virtual const BitwiseReport& bitwise() const = 0;
};

}  // namespace evenkeel
