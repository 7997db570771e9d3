// Loops over the elements of rows: conversions, sums, dot products. A row's result does not depend on where
// the row is in memory; the guarantee of equal bits needs this.
#pragma once

#include <cstddef>
#include <cstdint>

#include "evenkeel/base/data_type.h"
#include "evenkeel/base/matrix_view.h"

namespace evenkeel::rows {

// Element `index` of an array of `type`.
inline const std::byte* at(const void* array, std::int64_t index, DataType type) {
  return static_cast<const std::byte*>(array) + index * bytes_of(type);
}
inline std::byte* at(void* array, std::int64_t index, DataType type) {
  return static_cast<std::byte*>(array) + index * bytes_of(type);
}

void to_f32(std::int64_t n, const void* from, DataType type, float* to);
// Rounds to nearest, ties to even.
void from_f32(std::int64_t n, const float* from, void* to, DataType type);
void scale(std::int64_t n, float factor, float* row);
// sum += factor * from
void add_scaled(std::int64_t n, const float* from, float factor, float* sum);
void add_scaled(std::int64_t n, const void* from, DataType type, float factor, float* sum);
float dot(std::int64_t n, const float* a, const float* b);

// out = sum over i of weight[i] * rows[slot[i]], in order, in f32, rounded once. Slots of -1 are skipped;
// if `weight` is null, all weights are 1.
void weighted_sum(std::int64_t n, DataType type, int terms, const std::int32_t* slot, const float* weight,
                  const void* rows, void* out);

// out[i] = in[row[i]], rows of n elements.
void gather(std::int64_t rows, const std::int32_t* row, std::int64_t n, const void* in, void* out,
            DataType type);
void gather(std::int64_t rows, const std::int32_t* row, std::int64_t n, const SplitRows& in, void* out,
            DataType type);

}  // namespace evenkeel::rows
