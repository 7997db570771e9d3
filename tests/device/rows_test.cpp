// At every length, the loops over rows give the results of element-by-element code.
#include "evenkeel/device/cpu/rows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

namespace evenkeel {
namespace {

constexpr std::int64_t kLongest = 70;
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

std::vector<float> random_floats(std::int64_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<std::size_t>(n));
  for (float& value : values) value = normal(random);
  return values;
}

// Ordinary numbers, ties that round up or down, numbers that round up to infinity, subnormals, various NaNs.
std::vector<float> awkward_floats() {
  std::vector<float> values = {0.0f,
                               -0.0f,
                               1.0f,
                               kInf,
                               -kInf,
                               kNaN,
                               -kNaN,
                               std::numeric_limits<float>::max(),
                               std::numeric_limits<float>::denorm_min()};
  for (std::uint32_t bits : {0x3f808000u, 0x3f818000u, 0x3f808001u, 0x3f807fffu, 0x7f7f8000u, 0x7f800001u,
                             0xff80ffffu, 0x7fffffffu, 0x00008000u, 0x00018000u})
    values.push_back(std::bit_cast<float>(bits));
  std::mt19937 random(3);
  while (values.size() < 4096) values.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(random())));
  return values;
}

TEST(Rows, AreRoundedToBf16LikeOneNumberAtATime) {
  const std::vector<float> from = awkward_floats();
  for (std::size_t n = 0; n <= kLongest; ++n)
    for (std::size_t first = 0; first + n < 200; first += 17) {
      std::vector<bf16> to(n + 1, bf16(7.0f));
      rows::from_f32(static_cast<std::int64_t>(n), from.data() + first, to.data(), DataType::bf16);
      for (std::size_t i = 0; i < n; ++i) ASSERT_EQ(to[i].bits, bf16(from[first + i]).bits) << n << " " << i;
      ASSERT_EQ(to[n].bits, bf16(7.0f).bits) << "wrote beyond " << n;
    }
  std::vector<bf16> all(from.size());
  rows::from_f32(static_cast<std::int64_t>(from.size()), from.data(), all.data(), DataType::bf16);
  for (std::size_t i = 0; i < from.size(); ++i) ASSERT_EQ(all[i].bits, bf16(from[i]).bits);
}

TEST(Rows, OfBf16AreWidenedExactly) {
  std::vector<bf16> from(1 << 16);
  for (std::size_t i = 0; i < from.size(); ++i) from[i].bits = static_cast<std::uint16_t>(i);
  std::vector<float> to(from.size());
  rows::to_f32(static_cast<std::int64_t>(from.size()), from.data(), DataType::bf16, to.data());
  for (std::size_t i = 0; i < from.size(); ++i)
    ASSERT_EQ(std::bit_cast<std::uint32_t>(to[i]), static_cast<std::uint32_t>(i) << 16);
}

TEST(Rows, OfF32AreCopiedBitByBit) {
  const std::vector<float> from = awkward_floats();
  std::vector<float> there(from.size()), back(from.size());
  rows::from_f32(static_cast<std::int64_t>(from.size()), from.data(), there.data(), DataType::f32);
  rows::to_f32(static_cast<std::int64_t>(from.size()), there.data(), DataType::f32, back.data());
  EXPECT_EQ(std::memcmp(from.data(), back.data(), from.size() * sizeof(float)), 0);
}

TEST(Rows, AreScaledAndAddedAtEveryLength) {
  for (std::int64_t n = 0; n <= kLongest; ++n) {
    const auto size = static_cast<std::size_t>(n);
    const std::vector<float> from = random_floats(n, 1), start = random_floats(n, 2);
    std::vector<float> scaled = from, sum = start, sum_of_bf16 = start;
    std::vector<bf16> half(size);
    rows::from_f32(n, from.data(), half.data(), DataType::bf16);
    rows::scale(n, 0.5f, scaled.data());
    rows::add_scaled(n, from.data(), 0.25f, sum.data());
    rows::add_scaled(n, half.data(), DataType::bf16, 0.25f, sum_of_bf16.data());
    for (std::size_t i = 0; i < size; ++i) {
      ASSERT_EQ(scaled[i], from[i] * 0.5f);
      // A power-of-two factor is exact, so there is one rounding with or without fused multiply-add.
      ASSERT_EQ(sum[i], start[i] + 0.25f * from[i]);
      ASSERT_EQ(sum_of_bf16[i], start[i] + 0.25f * static_cast<float>(half[i]));
    }
  }
}

TEST(Dot, IsTheSumOfProductsAtEveryLength) {
  for (std::int64_t n = 0; n <= kLongest; ++n) {
    const std::vector<float> a = random_floats(n, 3), b = random_floats(n, 4);
    double exact = 0, magnitude = 0;
    for (std::size_t i = 0; i < static_cast<std::size_t>(n); ++i) {
      const double term = static_cast<double>(a[i]) * static_cast<double>(b[i]);
      exact += term;
      magnitude += std::abs(term);
    }
    const double bound = 0x1p-24 * static_cast<double>(n) * magnitude;
    EXPECT_LE(std::abs(static_cast<double>(rows::dot(n, a.data(), b.data())) - exact), bound) << n;
  }
}

// 2^24 + 1 - 2^24 gives 0 or 1, depending on the order of addition, which must be the order of the slots.
TEST(WeightedSum, AddsInTheOrderOfTheSlotsAndLeavesOutMinusOne) {
  constexpr float kBig = 0x1p24f;
  const float table[] = {kBig, 1.0f, -kBig};
  const auto sum = [&](std::vector<std::int32_t> slots, const float* weights) {
    float out = kNaN;
    rows::weighted_sum(1, DataType::f32, static_cast<int>(slots.size()), slots.data(), weights, table, &out);
    return out;
  };
  EXPECT_EQ(sum({0, 1, 2}, nullptr), 0.0f);
  EXPECT_EQ(sum({0, 2, 1}, nullptr), 1.0f);
  EXPECT_EQ(sum({-1, 1, -1, 1}, nullptr), 2.0f);
  EXPECT_EQ(sum({-1, -1}, nullptr), 0.0f);
  EXPECT_EQ(sum({}, nullptr), 0.0f);
  const float weights[] = {2.0f, 0.5f, kNaN};
  EXPECT_EQ(sum({1, 1, -1}, weights), 2.5f);
}

TEST(WeightedSum, RoundsOnceAtEveryLength) {
  for (std::int64_t n : {1, 15, 16, 17, 70, 511, 512, 513, 1100}) {
    const auto size = static_cast<std::size_t>(n);
    const std::vector<float> values = random_floats(3 * n, 5);
    std::vector<bf16> table(3 * size), out(size);
    rows::from_f32(3 * n, values.data(), table.data(), DataType::bf16);
    const std::int32_t slots[] = {2, 0, 1};
    const float weights[] = {0.5f, 2.0f, 1.0f};
    rows::weighted_sum(n, DataType::bf16, 3, slots, weights, table.data(), out.data());
    for (std::size_t i = 0; i < size; ++i) {
      float sum = 0.5f * static_cast<float>(table[2 * size + i]);
      sum += 2.0f * static_cast<float>(table[i]);
      sum += static_cast<float>(table[size + i]);
      ASSERT_EQ(out[i].bits, bf16(sum).bits) << n << " " << i;
    }
  }
}

TEST(Gather, CopiesRowsOfEitherTypeInAnyOrderAndAnyNumberOfTimes) {
  for (DataType type : {DataType::f32, DataType::bf16})
    for (std::int64_t n : {1, 3, 64, 65}) {
      std::vector<std::byte> in(static_cast<std::size_t>(5 * n * bytes_of(type)));
      for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<std::byte>(i * 7);
      const std::vector<std::int32_t> order = {4, 0, 0, 3};
      std::vector<std::byte> out(static_cast<std::size_t>(4 * n * bytes_of(type)));
      rows::gather(4, order.data(), n, in.data(), out.data(), type);
      for (std::int64_t i = 0; i < 4; ++i)
        EXPECT_EQ(std::memcmp(rows::at(out.data(), i * n, type),
                              rows::at(in.data(), order[static_cast<std::size_t>(i)] * n, type),
                              static_cast<std::size_t>(n * bytes_of(type))),
                  0);
    }
}

}  // namespace
}  // namespace evenkeel
