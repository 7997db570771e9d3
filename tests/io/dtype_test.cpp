#include "evenkeel/io/dtype.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

namespace evenkeel {
namespace {

template <class Stored>
float float_of(Dtype type, Stored stored) {
  float value = 0;
  to_float(type, std::as_bytes(std::span(&stored, 1)), std::span(&value, 1));
  return value;
}

// By the definition of binary16: a sign bit, 5 exponent bits (bias 15) and 10 fraction bits.
TEST(Dtype, EveryFloat16BecomesTheFloatOfItsDefinition) {
  for (int bits = 0; bits < 65536; ++bits) {
    const int exponent = bits >> 10 & 31;
    const int fraction = bits & 1023;
    const double sign = bits >= 32768 ? -1 : 1;
    const float value = float_of(Dtype::f16, static_cast<std::uint16_t>(bits));
    if (exponent == 31) {
      EXPECT_EQ(std::isnan(value), fraction != 0) << bits;
      EXPECT_EQ(std::isinf(value), fraction == 0) << bits;
    } else {
      const double expected =
          exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
      ASSERT_EQ(value, static_cast<float>(sign * expected)) << bits;
    }
    EXPECT_EQ(std::signbit(value), bits >= 32768) << bits;
  }
}

TEST(Dtype, Bfloat16IsTheUpperHalfOfAFloat) {
  for (float value : {0.0F, -1.0F, 1.5F, 3.0e38F, -1.0e-40F}) {
    const std::uint32_t upper = std::bit_cast<std::uint32_t>(value) & 0xffff0000u;
    const float read = float_of(Dtype::bf16, static_cast<std::uint16_t>(upper >> 16));
    EXPECT_EQ(std::bit_cast<std::uint32_t>(read), upper);
  }
}

template <class Stored>
void expect_extremes(Dtype type) {
  const std::vector<Stored> stored{std::numeric_limits<Stored>::min(), 0, 7,
                                   std::numeric_limits<Stored>::max()};
  std::vector<std::int64_t> read(stored.size());
  EXPECT_EQ(to_whole(type, std::as_bytes(std::span(stored)), read), std::nullopt);
  for (std::size_t i = 0; i < stored.size(); ++i)
    EXPECT_EQ(read[i], static_cast<std::int64_t>(stored[i])) << name_of(type);
  EXPECT_EQ(item_size(type), static_cast<std::int64_t>(sizeof(Stored)));
  EXPECT_TRUE(is_integer(type));
}

TEST(Dtype, IntegersKeepTheirValues) {
  expect_extremes<std::int8_t>(Dtype::i8);
  expect_extremes<std::uint8_t>(Dtype::u8);
  expect_extremes<std::int16_t>(Dtype::i16);
  expect_extremes<std::uint16_t>(Dtype::u16);
  expect_extremes<std::int32_t>(Dtype::i32);
  expect_extremes<std::uint32_t>(Dtype::u32);
  expect_extremes<std::int64_t>(Dtype::i64);
}

TEST(Dtype, TheFirstUnsignedNumberTooBigForInt64IsPointedAt) {
  const std::uint64_t most = (std::uint64_t{1} << 63) - 1;
  std::vector<std::uint64_t> stored{5, most, most + 1, ~std::uint64_t{0}};
  std::vector<std::int64_t> read(stored.size());
  EXPECT_EQ(to_whole(Dtype::u64, std::as_bytes(std::span(stored)), read), 2U);
  stored.resize(2);
  read.resize(2);
  EXPECT_EQ(to_whole(Dtype::u64, std::as_bytes(std::span(stored)), read), std::nullopt);
  EXPECT_EQ(read, (std::vector<std::int64_t>{5, std::numeric_limits<std::int64_t>::max()}));
}

TEST(Dtype, DoublesAreRoundedToFloat) {
  EXPECT_EQ(float_of(Dtype::f64, 0.1), 0.1F);
}

}  // namespace
}  // namespace evenkeel
