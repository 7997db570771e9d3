// Matrix products: equal bits for every row count where promised, padding without effect, gradients that add
// up.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "evenkeel/compute/cpu/internal/gradient_product.h"
#include "evenkeel/compute/cpu/internal/row_ladder.h"
#include "evenkeel/device/cpu/rows.h"

namespace evenkeel::internal {
namespace {

// Numbers of a given type, aligned to a cache line.
class Numbers {
 public:
  Numbers(std::int64_t count, DataType type, float scale, unsigned seed)
      : type_(type), lines_(size(count, type)) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0, scale);
    std::vector<float> values(static_cast<std::size_t>(count));
    for (float& value : values) value = scale == 0 ? 0.0f : normal(random);
    rows::from_f32(count, values.data(), data(), type);
  }
  std::byte* data(std::int64_t i = 0) { return rows::at(lines_.data(), i, type_); }
  double operator[](std::int64_t i) {
    float value = 0;
    rows::to_f32(1, data(i), type_, &value);
    return static_cast<double>(value);
  }

 private:
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  static std::size_t size(std::int64_t count, DataType type) {
    return static_cast<std::size_t>((count * bytes_of(type) + 63) / 64 + 1);
  }
  DataType type_;
  std::vector<Line> lines_;
};

// Runs all blocks of a product and puts them side by side in rows of `out` columns.
void run_whole(const RowLadder& ladder, std::int64_t out, std::int64_t m, const std::byte* a,
               const std::byte* packed, float* c) {
  Numbers block(kTileRows * ladder.widest_block(), DataType::f32, 0, 0),
      scratch(ladder.scratch_bytes() + 64, DataType::f32, 0, 0);
  std::int64_t columns = 0;
  for (std::int64_t i = 0; i < ladder.blocks(); ++i) {
    const RowLadder::Block at = ladder.block(i);
    ASSERT_EQ(at.begin, columns);
    columns += at.columns;
    ladder.run(i, m, a, packed, reinterpret_cast<float*>(block.data()), scratch.data());
    for (std::int64_t r = 0; r < m; ++r)
      std::memcpy(c + r * out + at.begin, block.data(r * at.columns),
                  static_cast<std::size_t>(at.columns) * 4);
  }
  ASSERT_EQ(columns, out);
}

class Products : public ::testing::TestWithParam<DataType> {};

// A ladder where each row's bits may depend on that row only, with rows and weights to multiply.
struct PackedProduct {
  PackedProduct(std::int64_t in, std::int64_t out, DataType type)
      : ladder(in, out, type, RowLadder::Plain::out_by_in, RowLadder::Bits::of_the_row_alone),
        a(kTileRows * in, type, 1, 1),
        plain(in * out, type, 0.1f, 2),
        packed(ladder.packed_bytes(), DataType::f32, 0, 0),
        scratch(ladder.scratch_bytes() + 64, DataType::f32, 0, 0) {
    ladder.pack(plain.data(), packed.data());
  }

  RowLadder ladder;
  Numbers a, plain, packed, scratch;
};

TEST_P(Products, OfARowAreTheSameBitsForEveryRowCountWherePromised) {
  const DataType type = GetParam();
  // For the last shape, oneDNN primitives of different row counts disagree on some CPUs.
  const std::pair<std::int64_t, std::int64_t> shapes[] = {{17, 31},   {64, 96},  {200, 48},
                                                          {48, 1000}, {96, 575}, {2880, 128}};
  for (const auto& [in, out] : shapes) {
    PackedProduct product(in, out, type);
    auto& [ladder, a, plain, packed, scratch] = product;
    if (!ladder.bitwise()) continue;  // not promised on this CPU; the layer reports that
    Numbers single(kTileRows * out, DataType::f32, 0, 0), many(kTileRows * out, DataType::f32, 0, 0);
    Numbers row(kTileRows * in, type, 0, 0);
    std::vector<float> expected(static_cast<std::size_t>(kTileRows * out));
    for (std::int64_t r = 0; r < kTileRows; ++r) {
      std::memcpy(row.data(), a.data(r * in), static_cast<std::size_t>(in * bytes_of(type)));
      run_whole(ladder, out, 1, row.data(), packed.data(), reinterpret_cast<float*>(single.data()));
      std::memcpy(&expected[static_cast<std::size_t>(r * out)], single.data(),
                  static_cast<std::size_t>(out) * 4);
    }
    for (std::int64_t m = 1; m <= ladder.max_rows(); m += in > 1000 ? 9 : 1) {
      run_whole(ladder, out, m, a.data(), packed.data(), reinterpret_cast<float*>(many.data()));
      ASSERT_EQ(std::memcmp(many.data(), expected.data(), static_cast<std::size_t>(m * out) * 4), 0)
          << in << " x " << out << ", " << m << " rows";
    }
  }
}

TEST_P(Products, TouchNoMoreRowsThanTheSpaceThatMaxRowsWasAskedAbout) {
  constexpr std::int64_t in = 48, out = 80;
  PackedProduct product(in, out, GetParam());
  auto& [ladder, a, plain, packed, scratch] = product;
  ASSERT_EQ(ladder.blocks(), 1);
  std::vector<std::int64_t> spaces = {16, kRecomputeTileRows, kTileRows - 1, kTileRows};
  for (std::int64_t space = 1; space < 16; ++space)
    if (ladder.max_rows(space) > 0) spaces.push_back(space);
  for (const std::int64_t space : spaces) {
    ASSERT_LE(ladder.scratch_bytes(space), ladder.scratch_bytes());
    const std::int64_t most = ladder.max_rows(space);
    ASSERT_GE(most, 1);
    ASSERT_LE(most, space);
    constexpr float kUntouched = 12345;
    std::vector<float> c(static_cast<std::size_t>((kTileRows + 16) * out), kUntouched);
    for (std::int64_t m = 1; m <= most; ++m)
      ladder.run(0, m, a.data(), packed.data(), c.data(), scratch.data());
    EXPECT_EQ(std::count(c.begin() + space * out, c.end(), kUntouched), (kTileRows + 16 - space) * out);
    EXPECT_NE(c[static_cast<std::size_t>(most * out - 1)], kUntouched);
  }
}

TEST_P(Products, AreTheSumsOfProductsForBothLayoutsOfTheWeights) {
  const DataType type = GetParam();
  constexpr std::int64_t in = 37, m = 19;
  const std::pair<RowLadder::Plain, std::int64_t> cases[] = {{RowLadder::Plain::out_by_in, 21},
                                                             {RowLadder::Plain::in_by_out, 21},
                                                             {RowLadder::Plain::out_by_in, 700},
                                                             {RowLadder::Plain::in_by_out, 700}};
  for (const auto& [layout, out] : cases) {
    const RowLadder ladder(in, out, type, layout, RowLadder::Bits::any);
    Numbers a(kTileRows * in, type, 1, 1), plain(in * out, type, 1, 2),
        c(kTileRows * out, DataType::f32, 0, 0);
    Numbers packed(ladder.packed_bytes(), DataType::f32, 0, 0);
    ladder.pack(plain.data(), packed.data());
    run_whole(ladder, out, m, a.data(), packed.data(), reinterpret_cast<float*>(c.data()));
    for (std::int64_t r = 0; r < m; ++r)
      for (std::int64_t n = 0; n < out; ++n) {
        double sum = 0, magnitude = 0;
        for (std::int64_t k = 0; k < in; ++k) {
          const double term =
              a[r * in + k] * plain[layout == RowLadder::Plain::out_by_in ? n * in + k : k * out + n];
          sum += term;
          magnitude += std::abs(term);
        }
        ASSERT_NEAR(c[r * out + n], sum, 0x1p-24 * in * magnitude);
      }
  }
}

// Where bits are equal for every row count, a single row is computed inside a padded block in scratch.
TEST_P(Products, OfARowAloneTouchNoOtherAndAreTheBitsAmongMany) {
  constexpr std::int64_t in = 256, out = 192;
  PackedProduct product(in, out, GetParam());
  auto& [ladder, a, plain, packed, scratch] = product;
  ASSERT_EQ(ladder.max_rows(1), 1);
  if (!ladder.bitwise()) GTEST_SKIP() << "products on this CPU are not bitwise reproducible";
  constexpr float kUntouched = 12345;
  std::vector<float> one(static_cast<std::size_t>(kTileRows * out), kUntouched), many(one.size());
  Numbers alone(in, GetParam(), 0, 0), little(ladder.scratch_bytes(1) + 64, DataType::f32, 0, 0);
  ladder.run(0, ladder.max_rows(), a.data(), packed.data(), many.data(), scratch.data());
  for (std::int64_t r = 0; r < 8; ++r) {
    std::memcpy(alone.data(), a.data(r * in), static_cast<std::size_t>(in * bytes_of(GetParam())));
    ladder.run(0, 1, alone.data(), packed.data(), one.data(), little.data());
    ASSERT_EQ(std::memcmp(one.data(), &many[static_cast<std::size_t>(r * out)], out * sizeof(float)), 0) << r;
    ASSERT_EQ(std::count(one.begin() + out, one.end(), kUntouched), (kTileRows - 1) * out);
  }
}

TEST_P(Products, OfGradientsAreAddedAndPaddingChangesNothing) {
  const DataType type = GetParam();
  constexpr std::int64_t M = 13, N = 22;
  const GradientProduct product(M, N, type);
  for (std::int64_t k : {1, 2, 15, 16, 17, 100, 255, 256, 383, 384}) {
    const std::int64_t padded = k + GradientProduct::padding(k);
    ASSERT_TRUE(k <= GradientProduct::kFewRows ? padded == k : padded % 16 == 0);
    Numbers scratch(product.scratch_bytes(k) + 64, DataType::f32, 0, 0);
    Numbers a(padded * M, type, 1, 3), b(padded * N, type, 1, 4), c(M * N, DataType::f32, 1, 5),
        before(M * N, DataType::f32, 1, 5);
    std::memset(a.data(k * M), 0, static_cast<std::size_t>((padded - k) * M * bytes_of(type)));
    std::memset(b.data(k * N), 0, static_cast<std::size_t>((padded - k) * N * bytes_of(type)));
    product.add(k, a.data(), b.data(), reinterpret_cast<float*>(c.data()), scratch.data());
    for (std::int64_t i = 0; i < M; ++i)
      for (std::int64_t j = 0; j < N; ++j) {
        double sum = before[i * N + j], magnitude = std::abs(sum);
        for (std::int64_t r = 0; r < k; ++r) {
          sum += a[r * M + i] * b[r * N + j];
          magnitude += std::abs(a[r * M + i] * b[r * N + j]);
        }
        ASSERT_NEAR(c[i * N + j], sum, 0x1p-24 * static_cast<double>(k + 1) * magnitude) << k;
      }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Products, ::testing::Values(DataType::f32, DataType::bf16));

}  // namespace
}  // namespace evenkeel::internal
