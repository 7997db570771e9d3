// The epilogues of products. They move a product's sums from registers to memory, eight columns of one row at
// a time.
//
// An epilogue prefetches in two steps, so that write() does not wait for memory. row() is called before the
// product. read() loads eight columns, kAhead segments before write() gets what it loaded and the sums.
#pragma once

#include "evenkeel/compute/cuda/expert_ffn.h"
#include "evenkeel/compute/cuda/internal/activation.h"
#include "evenkeel/compute/cuda/internal/eight.h"
#include "evenkeel/compute/cuda/internal/tile_schedule.h"

namespace evenkeel::cuda {

namespace internal {

EVENKEEL_ALWAYS_INLINE void add_to(Eight& sum, const Eight& term) {
  EVENKEEL_UNROLL
  for (int i = 0; i < kEight; ++i) sum.at[i] += term.at[i];
}

}  // namespace internal

// Writes h and the pre-activations of forward; either pointer may be null.
template <Activation kActivation>
struct HiddenEpilogue {
  static constexpr bool kGated = is_gated(kActivation);
  static constexpr bool kDots = false;
  static constexpr int kAhead = 2;
  const ExpertWeights* weights = nullptr;
  bool biases = false;
  std::int64_t width = 0;  // F
  bf16* hidden = nullptr;  // [positions, F]
  bf16* saved = nullptr;   // [positions, 2 F], or [positions, F] without a gate

  struct Row {
    const bf16* bias = nullptr;
    bf16* hidden = nullptr;
    bf16* saved = nullptr;
  };
  struct Read {
    Fetched<bf16> gate_bias, up_bias;
  };

  EVENKEEL_ALWAYS_INLINE Row row(const Tile& tile, int row) const {
    const std::int64_t position = tile.begin + row;
    return {biases ? static_cast<const bf16*>(weights[tile.group].gate_up_bias) : nullptr,
            hidden == nullptr ? nullptr : hidden + position * width,
            saved == nullptr ? nullptr : saved + position * (width + up_begin())};
  }

  template <Lines kLines>
  EVENKEEL_ALWAYS_INLINE Read read(const Row& row, std::int64_t column, int count) const {
    Read read{};
    if (row.bias == nullptr) return read;
    if constexpr (kGated) read.gate_bias = fetch<kLines>(row.bias + column, count);
    read.up_bias = fetch<kLines>(row.bias + up_begin() + column, count);
    return read;
  }

  template <Lines kLines>
  EVENKEEL_ALWAYS_INLINE float write(const Row& row, std::int64_t column, int count, Eight gate, Eight up,
                                     const Read& read) const {
    if (row.bias != nullptr) {
      if constexpr (kGated) internal::add_to(gate, widened(read.gate_bias));
      internal::add_to(up, widened(read.up_bias));
    }
    if (row.saved != nullptr) {
      Eight kept;
      if constexpr (kGated) {
        EVENKEEL_UNROLL
        for (int i = 0; i < kEight; ++i) kept.at[i] = to_be_saved<kActivation>(gate.at[i], false);
        store<kLines>(kept, row.saved + column, count);
      }
      EVENKEEL_UNROLL
      for (int i = 0; i < kEight; ++i) kept.at[i] = to_be_saved<kActivation>(up.at[i], true);
      store<kLines>(kept, row.saved + up_begin() + column, count);
    }
    if (row.hidden == nullptr) return 0;
    Eight h;
    EVENKEEL_UNROLL
    for (int i = 0; i < kEight; ++i) h.at[i] = activate<kActivation>(gate.at[i], up.at[i]);
    store<kLines>(h, row.hidden + column, count);
    return 0;
  }

 private:
  EVENKEEL_HOST_DEVICE std::int64_t up_begin() const { return kGated ? width : 0; }
};

// Writes an expert's output rows, rounded once.
struct OutputEpilogue {
  static constexpr bool kGated = false;
  static constexpr bool kDots = false;
  static constexpr int kAhead = 4;
  const ExpertWeights* weights = nullptr;
  bool biases = false;
  std::int64_t width = 0;
  const std::int32_t* output_row = nullptr;
  bf16* output = nullptr;

  struct Row {
    const bf16* bias = nullptr;
    bf16* output = nullptr;
  };
  using Read = Fetched<bf16>;

  EVENKEEL_ALWAYS_INLINE Row row(const Tile& tile, int row) const {
    return {biases ? static_cast<const bf16*>(weights[tile.group].down_bias) : nullptr,
            output + std::int64_t{output_row[tile.begin + row]} * width};
  }

  template <Lines kLines>
  EVENKEEL_ALWAYS_INLINE Read read(const Row& row, std::int64_t column, int count) const {
    return row.bias == nullptr ? Read{} : fetch<kLines>(row.bias + column, count);
  }

  template <Lines kLines>
  EVENKEEL_ALWAYS_INLINE float write(const Row& row, std::int64_t column, int count, const Eight&, Eight sum,
                                     const Read& bias) const {
    if (row.bias != nullptr) internal::add_to(sum, widened(bias));
    store<kLines>(sum, row.output + column, count);
    return 0;
  }
};

// Takes d(y . G)/dh. Writes the gradient of the pre-activations and weight * h, which later products read.
// Also writes the row's part of (y . G), which is h . d(y . G)/dh. grad_pre may overwrite `saved`.
template <Activation kActivation>
struct HiddenGradientEpilogue {
  static constexpr bool kGated = false;  // the product is not gated: its columns are those of h
  static constexpr bool kDots = true;
  static constexpr int kAhead = 2;
  std::int64_t width = 0;  // F
  const std::int32_t* output_row = nullptr;
  const float* weight = nullptr;    // by output row
  const bf16* saved = nullptr;      // [positions, pre-activations]
  bf16* grad_pre = nullptr;         // [positions, pre-activations]
  bf16* weighted_hidden = nullptr;  // [positions, F]
  float* dots = nullptr;            // [slots, max_positions]
  std::int64_t max_positions = 0;

  struct Row {
    std::int64_t position = 0;
    float weight = 0;
  };
  struct Read {
    Fetched<bf16> gate, up;
  };

  EVENKEEL_ALWAYS_INLINE Row row(const Tile& tile, int row) const {
    const std::int64_t position = tile.begin + row;
    return {position, weight[output_row[position]]};
  }

  template <Lines kLines>
  EVENKEEL_ALWAYS_INLINE Read read(const Row& row, std::int64_t column, int count) const {
    const bf16* const from = saved + row.position * (width + up_begin()) + column;
    Read read{};
    if constexpr (kHasGate) read.gate = fetch<kLines>(from, count);
    read.up = fetch<kLines>(from + up_begin(), count);
    return read;
  }

  template <Lines kLines>
  EVENKEEL_ALWAYS_INLINE float write(const Row& row, std::int64_t column, int count, const Eight&,
                                     const Eight& grad_h, const Read& read) const {
    const Eight gate = widened(read.gate);
    const Eight up = widened(read.up);
    Eight h, grad_gate, grad_up;
    float dot = 0;
    EVENKEEL_UNROLL
    for (int i = 0; i < kEight; ++i) {
      const Derivatives d = differentiate<kActivation>(gate.at[i], up.at[i]);
      dot += i < count ? d.h * grad_h.at[i] : 0.0f;
      h.at[i] = row.weight * d.h;
      grad_gate.at[i] = row.weight * (grad_h.at[i] * d.by_gate);
      grad_up.at[i] = row.weight * (grad_h.at[i] * d.by_up);
    }
    bf16* const to = grad_pre + row.position * (width + up_begin()) + column;
    store<kLines>(h, weighted_hidden + row.position * width + column, count);
    if constexpr (kHasGate) store<kLines>(grad_gate, to, count);
    store<kLines>(grad_up, to + up_begin(), count);
    return dot;
  }

  EVENKEEL_HOST_DEVICE void keep_dot(const Tile& tile, int row, int slot, float dot) const {
    dots[slot * max_positions + tile.begin + row] = dot;
  }

 private:
  static constexpr bool kHasGate = is_gated(kActivation);
  EVENKEEL_HOST_DEVICE std::int64_t up_begin() const { return kHasGate ? width : 0; }
};

// Writes the gradient of the input, one row per position.
struct InputGradientEpilogue {
  static constexpr bool kGated = false;
  static constexpr bool kDots = false;
  static constexpr int kAhead = 1;
  std::int64_t width = 0;
  float* grad_position = nullptr;

  struct Row {
    float* to = nullptr;
  };
  struct Read {};

  EVENKEEL_ALWAYS_INLINE Row row(const Tile& tile, int row) const {
    return {grad_position + std::int64_t{tile.begin + row} * width};
  }
  template <Lines kLines>
  EVENKEEL_ALWAYS_INLINE Read read(const Row&, std::int64_t, int) const {
    return {};
  }
  template <Lines kLines>
  EVENKEEL_ALWAYS_INLINE float write(const Row& row, std::int64_t column, int count, const Eight&,
                                     const Eight& sum, const Read&) const {
    store<kLines>(sum, row.to + column, count);
    return 0;
  }
};

// Adds to a weight matrix's gradient of type T.
template <class T>
struct WeightGradientEpilogue {
  static constexpr bool kGated = false;
  static constexpr bool kDots = false;
  static constexpr int kAhead = 4;
  const DeviceExpertGradients* gradients = nullptr;
  bool of_down = false;
  std::int64_t width = 0;

  struct Row {
    T* to = nullptr;
  };
  using Read = Fetched<T>;

  EVENKEEL_ALWAYS_INLINE Row row(const Tile& tile, int row) const {
    const DeviceExpertGradients& own = gradients[tile.group];
    return {static_cast<T*>(of_down ? own.down : own.gate_up) + std::int64_t{tile.row + row} * width};
  }
  template <Lines kLines>
  EVENKEEL_ALWAYS_INLINE Read read(const Row& row, std::int64_t column, int count) const {
    return fetch<kLines>(row.to + column, count);
  }
  template <Lines kLines>
  EVENKEEL_ALWAYS_INLINE float write(const Row& row, std::int64_t column, int count, const Eight&, Eight sum,
                                     const Read& before) const {
    internal::add_to(sum, widened(before));
    store<kLines>(sum, row.to + column, count);
    return 0;
  }
};

}  // namespace evenkeel::cuda
