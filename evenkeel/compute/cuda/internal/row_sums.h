// The sums that backward computes besides its products: the gradients of row weights, of biases and, if it is
// requested by row, of the input. The order of every sum depends only on the input.
#pragma once

#include <algorithm>

#include "evenkeel/compute/cuda/internal/boxes.h"
#include "evenkeel/compute/cuda/internal/epilogues.h"

namespace evenkeel::cuda {

namespace internal {

EVENKEEL_HOST_DEVICE inline std::int32_t fetch_add(std::int32_t* to, std::int32_t value) {
#if defined(__CUDA_ARCH__)
  return atomicAdd(to, value);
#else
  const std::int32_t before = *to;
  *to += value;
  return before;
#endif
}

EVENKEEL_HOST_DEVICE inline void add_number(void* to, std::int64_t at, DataType type, float value) {
  if (type == DataType::f32)
    static_cast<float*>(to)[at] += value;
  else {
    bf16& number = static_cast<bf16*>(to)[at];
    number.bits = static_cast<std::uint16_t>(round_two(widen_low(number.bits) + value, 0));
  }
}

}  // namespace internal

// grad_weight of a position's output row: y . G. The products have stored its parts h . d(y . G)/dh by slot.
struct RowWeightGradient {
  const ExpertWeights* weights = nullptr;  // null without biases
  const std::int32_t* begin = nullptr;
  int num_groups = 0;
  Rows grad_output;
  const std::int32_t* output_row = nullptr;
  const float* dots = nullptr;  // [slots, max_positions]
  int slots = 0;
  std::int64_t max_positions = 0;
  float* grad_weight = nullptr;

  EVENKEEL_HOST_DEVICE bool has(std::int64_t position) const {
    return position >= begin[0] && position < begin[num_groups];
  }

  // A lane's part of the sum; the caller adds the lanes' parts.
  EVENKEEL_HOST_DEVICE float part(std::int32_t position, int lane, int lanes) const {
    float sum = 0;
    for (int slot = lane; slot < slots; slot += lanes) sum += dots[slot * max_positions + position];
    if (weights == nullptr) return sum;
    const auto* bias =
        static_cast<const bf16*>(weights[internal::group_of(begin, num_groups, position)].down_bias);
    const bf16* row = grad_output.data + grad_output.row_of(position) * grad_output.width;
    for (std::int64_t d = std::int64_t{lane} * kEight; d < grad_output.width; d += lanes * kEight) {
      const int count = columns_left(grad_output.width, d);
      const Eight a = widened(fetch(bias + d, count)), b = widened(fetch(row + d, count));
      EVENKEEL_UNROLL
      for (int i = 0; i < kEight; ++i) sum += a.at[i] * b.at[i];
    }
    return sum;
  }
  EVENKEEL_HOST_DEVICE void write(std::int32_t position, float sum) const {
    grad_weight[output_row[position]] = sum;
  }
};

// A bias's gradient: the weighted sum of rows over a group's positions. The positions are divided into shares
// that are summed separately, so that one large group can use the whole GPU, and then added in order.
struct BiasGradient {
  const std::int32_t* begin = nullptr;
  int num_groups = 0;
  Rows rows;
  const std::int32_t* output_row = nullptr;
  const float* weight = nullptr;  // by output row; null means 1
  const DeviceExpertGradients* gradients = nullptr;
  bool of_down = false;
  DataType type = DataType::f32;
  float* share_sums = nullptr;  // [num_shares, num_groups, width], if num_shares > 1
  int num_shares = 1;

  static constexpr int kMostShares = 16;
  // The largest number of shares whose sums fit into `floats` numbers; at least one.
  static int shares_in(std::int64_t floats, int num_groups, std::int64_t width) {
    const std::int64_t each = std::max<std::int64_t>(num_groups * width, 1);
    return static_cast<int>(std::clamp<std::int64_t>(floats / each, 1, kMostShares));
  }

  // The sum of eight columns from `column` over the positions first, first + step, ... of a group. Unrolled,
  // so that several loads are in flight.
  EVENKEEL_HOST_DEVICE Eight part(int group, std::int64_t column, int first, int step) const {
    Eight sum{};
    const int count = columns_left(rows.width, column);
    EVENKEEL_UNROLL_BY(4)
    for (std::int32_t position = begin[group] + first; position < begin[group + 1]; position += step) {
      const float by = weight == nullptr ? 1.0f : weight[output_row[position]];
      const Eight row = widened(fetch(rows.data + rows.row_of(position) * rows.width + column, count));
      EVENKEEL_UNROLL
      for (int i = 0; i < kEight; ++i) sum.at[i] += by * row.at[i];
    }
    return sum;
  }
  EVENKEEL_HOST_DEVICE void keep(int share, int group, std::int64_t column, const Eight& sum) const {
    store(sum, share_sums + at_share(share, group, column), columns_left(rows.width, column));
  }
  EVENKEEL_HOST_DEVICE Eight sum_of_shares(int group, std::int64_t column) const {
    Eight sum{};
    for (int share = 0; share < num_shares; ++share)
      internal::add_to(
          sum, widened(fetch(share_sums + at_share(share, group, column), columns_left(rows.width, column))));
    return sum;
  }
  EVENKEEL_HOST_DEVICE void add(int group, std::int64_t column, const Eight& sum) const {
    void* const bias = of_down ? gradients[group].down_bias : gradients[group].gate_up_bias;
    for (int i = 0; i < columns_left(rows.width, column); ++i)
      internal::add_number(bias, column + i, type, sum.at[i]);
  }

 private:
  EVENKEEL_HOST_DEVICE std::int64_t at_share(int share, int group, std::int64_t column) const {
    return (std::int64_t{share} * num_groups + group) * rows.width + column;
  }
};

// grad_input[row] += grad_position[i] for all positions i that read the row, in order. Counting builds one
// list of positions per row. Which part of `list` a row gets varies between runs. What that part contains,
// once sorted, does not.
struct InputGradient {
  const std::int32_t* begin = nullptr;
  int num_groups = 0;
  const std::int32_t* input_row = nullptr;
  std::int64_t num_rows = 0;
  std::int64_t width = 0;
  std::int64_t max_positions = 0;
  const float* grad_position = nullptr;
  float* grad_input = nullptr;
  std::int32_t* counts = nullptr;  // [num_rows + 1], zero at first; the last counts allotted list entries
  std::int32_t* ends = nullptr;    // [num_rows]: end of each row's list
  std::int32_t* list = nullptr;    // [max_positions]

  static constexpr std::int64_t ints(std::int64_t rows, std::int64_t max_positions) {
    return 2 * rows + 1 + max_positions;
  }

  EVENKEEL_HOST_DEVICE bool has(std::int64_t position) const {
    return position >= begin[0] && position < begin[num_groups];
  }
  // The four passes in order, each over all positions or all rows.
  EVENKEEL_HOST_DEVICE void count(std::int32_t position) const {
    internal::fetch_add(counts + input_row[position], 1);
  }
  EVENKEEL_HOST_DEVICE void place(std::int64_t row) const {
    ends[row] = counts[row] == 0 ? 0 : internal::fetch_add(counts + num_rows, counts[row]);
  }
  EVENKEEL_HOST_DEVICE void enter(std::int32_t position) const {
    list[internal::fetch_add(ends + input_row[position], 1)] = position;
  }
  EVENKEEL_HOST_DEVICE void sort(std::int64_t row) const {
    std::int32_t* const own = list + ends[row] - counts[row];
    for (int i = 1; i < counts[row]; ++i) {
      const std::int32_t position = own[i];
      int to = i;
      for (; to > 0 && own[to - 1] > position; --to) own[to] = own[to - 1];
      own[to] = position;
    }
  }

  EVENKEEL_HOST_DEVICE void add(std::int64_t row, std::int64_t column) const {
    const std::int32_t* const own = list + ends[row] - counts[row];
    float sum = grad_input[row * width + column];
    for (int i = 0; i < counts[row]; ++i) sum += grad_position[own[i] * width + column];
    grad_input[row * width + column] = sum;
  }
};

}  // namespace evenkeel::cuda
