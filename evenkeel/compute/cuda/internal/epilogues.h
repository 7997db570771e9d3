// What becomes of a product's sums: eight columns of one row at a time, from registers to memory.
#pragma once

#include "evenkeel/compute/cuda/expert_ffn.h"
#include "evenkeel/compute/cuda/internal/activation.h"
#include "evenkeel/compute/cuda/internal/eight.h"
#include "evenkeel/compute/cuda/internal/tile_schedule.h"

namespace evenkeel::cuda {

namespace internal {

EVENKEEL_ALWAYS_INLINE int columns_left(std::int64_t width, std::int64_t column) {
  return width - column < kEight ? static_cast<int>(width - column) : kEight;
}

EVENKEEL_ALWAYS_INLINE void add_to(Eight& sum, const Eight& term) {
  EVENKEEL_UNROLL
  for (int i = 0; i < kEight; ++i) sum.at[i] += term.at[i];
}

template <class T>
EVENKEEL_ALWAYS_INLINE void add_in_memory(const Eight& values, T* to, int count) {
  Eight sum = load(to, count);
  add_to(sum, values);
  store(sum, to, count);
}

}  // namespace internal

// h and the pre-activations of forward; either may be null.
template <Activation kActivation>
struct HiddenEpilogue {
  static constexpr bool kGated = is_gated(kActivation);
  static constexpr bool kDots = false;
  const DeviceExpertWeights* weights = nullptr;
  bool biases = false;
  std::int64_t intermediate = 0;
  bf16* hidden = nullptr;  // [positions, F]
  bf16* saved = nullptr;   // [positions, 2 F], or [positions, F] without a gate

  EVENKEEL_ALWAYS_INLINE float apply(const Tile& tile, int row, std::int64_t column, Eight gate,
                                     Eight up) const {
    const int count = internal::columns_left(intermediate, column);
    if (count <= 0) return 0;
    const std::int64_t position = tile.begin + row;
    if (biases) {
      const auto* bias = static_cast<const bf16*>(weights[tile.group].gate_up_bias) + column;
      if constexpr (kGated) internal::add_to(gate, load(bias, count));
      internal::add_to(up, load(bias + up_begin(), count));
    }
    if (saved != nullptr) {
      bf16* const to = saved + position * (intermediate + up_begin()) + column;
      Eight kept;
      if constexpr (kGated) {
        EVENKEEL_UNROLL
        for (int i = 0; i < kEight; ++i) kept.at[i] = to_be_saved<kActivation>(gate.at[i], false);
        store(kept, to, count);
      }
      EVENKEEL_UNROLL
      for (int i = 0; i < kEight; ++i) kept.at[i] = to_be_saved<kActivation>(up.at[i], true);
      store(kept, to + up_begin(), count);
    }
    if (hidden == nullptr) return 0;
    Eight h;
    EVENKEEL_UNROLL
    for (int i = 0; i < kEight; ++i) h.at[i] = activate<kActivation>(gate.at[i], up.at[i]);
    store(h, hidden + position * intermediate + column, count);
    return 0;
  }

 private:
  EVENKEEL_HOST_DEVICE std::int64_t up_begin() const { return kGated ? intermediate : 0; }
};

// An expert's output rows, rounded once.
struct OutputEpilogue {
  static constexpr bool kGated = false;
  static constexpr bool kDots = false;
  const DeviceExpertWeights* weights = nullptr;
  bool biases = false;
  std::int64_t width = 0;
  const std::int32_t* output_row = nullptr;
  bf16* output = nullptr;

  EVENKEEL_ALWAYS_INLINE float apply(const Tile& tile, int row, std::int64_t column, const Eight&,
                                     Eight sum) const {
    const int count = internal::columns_left(width, column);
    if (count <= 0) return 0;
    if (biases)
      internal::add_to(sum, load(static_cast<const bf16*>(weights[tile.group].down_bias) + column, count));
    store(sum, output + std::int64_t{output_row[tile.begin + row]} * width + column, count);
    return 0;
  }
};

// From d(y . G)/dh: the gradient of the pre-activations and weight * h, for the products that follow, and the
// row's share of (y . G), which is h . d(y . G)/dh. The gradient of a pre-activation may be written where it
// was saved.
template <Activation kActivation>
struct HiddenGradientEpilogue {
  static constexpr bool kGated = false;  // of the product: its columns are those of h
  static constexpr bool kDots = true;
  std::int64_t intermediate = 0;
  const std::int32_t* output_row = nullptr;
  const float* weight = nullptr;    // by output row
  const bf16* saved = nullptr;      // [positions, pre-activations]
  bf16* grad_pre = nullptr;         // likewise
  bf16* weighted_hidden = nullptr;  // [positions, F]
  float* dots = nullptr;            // [slots, max_positions]
  std::int64_t max_positions = 0;

  EVENKEEL_ALWAYS_INLINE float apply(const Tile& tile, int row, std::int64_t column, const Eight&,
                                     const Eight& grad_h) const {
    const int count = internal::columns_left(intermediate, column);
    if (count <= 0) return 0;
    constexpr bool kHasGate = is_gated(kActivation);
    const std::int64_t up_begin = kHasGate ? intermediate : 0;
    const std::int64_t position = tile.begin + row;
    const std::int64_t at = position * (intermediate + up_begin) + column;
    const float by = weight[output_row[position]];
    const Eight up = load(saved + at + up_begin, count);
    Eight gate{};
    if constexpr (kHasGate) gate = load(saved + at, count);
    Eight h, grad_gate, grad_up;
    float dot = 0;
    EVENKEEL_UNROLL
    for (int i = 0; i < kEight; ++i) {
      const Derivatives d = differentiate<kActivation>(gate.at[i], up.at[i]);
      dot += i < count ? d.h * grad_h.at[i] : 0.0f;
      h.at[i] = by * d.h;
      grad_gate.at[i] = by * (grad_h.at[i] * d.by_gate);
      grad_up.at[i] = by * (grad_h.at[i] * d.by_up);
    }
    store(h, weighted_hidden + position * intermediate + column, count);
    if constexpr (kHasGate) store(grad_gate, grad_pre + at, count);
    store(grad_up, grad_pre + at + up_begin, count);
    return dot;
  }

  EVENKEEL_HOST_DEVICE void keep_dot(const Tile& tile, int row, int slot, float dot) const {
    dots[slot * max_positions + tile.begin + row] = dot;
  }
};

// The gradient of the input, a row for each position.
struct InputGradientEpilogue {
  static constexpr bool kGated = false;
  static constexpr bool kDots = false;
  std::int64_t width = 0;
  float* grad_position = nullptr;

  EVENKEEL_ALWAYS_INLINE float apply(const Tile& tile, int row, std::int64_t column, const Eight&,
                                     const Eight& sum) const {
    const int count = internal::columns_left(width, column);
    if (count > 0) store(sum, grad_position + std::int64_t{tile.begin + row} * width + column, count);
    return 0;
  }
};

// Adds to a weight matrix's gradient.
struct WeightGradientEpilogue {
  static constexpr bool kGated = false;
  static constexpr bool kDots = false;
  const DeviceExpertGradients* gradients = nullptr;
  bool of_down = false;
  DataType type = DataType::f32;
  std::int64_t width = 0;

  EVENKEEL_ALWAYS_INLINE float apply(const Tile& tile, int row, std::int64_t column, const Eight&,
                                     const Eight& sum) const {
    const int count = internal::columns_left(width, column);
    if (count <= 0) return 0;
    const DeviceExpertGradients& own = gradients[tile.group];
    void* const matrix = of_down ? own.down : own.gate_up;
    const std::int64_t at = (tile.row + row) * width + column;
    if (type == DataType::f32)
      internal::add_in_memory(sum, static_cast<float*>(matrix) + at, count);
    else
      internal::add_in_memory(sum, static_cast<bf16*>(matrix) + at, count);
    return 0;
  }
};

}  // namespace evenkeel::cuda
