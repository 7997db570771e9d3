#include "evenkeel/io/dtype.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "evenkeel/base/check.h"

namespace evenkeel {

namespace {

static_assert(std::endian::native == std::endian::little,
              "files are little-endian; big-endian machines are not supported");

constexpr std::array<DtypeNames, 13> known = {{
    {Dtype::b8, 1, "bool", "BOOL", "b1", "torch BoolStorage"},
    {Dtype::u8, 1, "uint8", "U8", "u1", "torch ByteStorage"},
    {Dtype::i8, 1, "int8", "I8", "i1", "torch CharStorage"},
    {Dtype::u16, 2, "uint16", "U16", "u2", ""},
    {Dtype::i16, 2, "int16", "I16", "i2", "torch ShortStorage"},
    {Dtype::u32, 4, "uint32", "U32", "u4", ""},
    {Dtype::i32, 4, "int32", "I32", "i4", "torch IntStorage"},
    {Dtype::u64, 8, "uint64", "U64", "u8", ""},
    {Dtype::i64, 8, "int64", "I64", "i8", "torch LongStorage"},
    {Dtype::f16, 2, "float16", "F16", "f2", "torch HalfStorage"},
    {Dtype::bf16, 2, "bfloat16", "BF16", "", "torch BFloat16Storage"},
    {Dtype::f32, 4, "float32", "F32", "f4", "torch FloatStorage"},
    {Dtype::f64, 8, "float64", "F64", "f8", "torch DoubleStorage"},
}};

struct Half {
  std::uint16_t bits;

  operator float() const {
    const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
    const std::uint32_t exponent = (bits >> 10) & 0x1fu;
    const std::uint32_t fraction = bits & 0x3ffu;
    if (exponent == 0) {
      const float subnormal = static_cast<float>(fraction) * 0x1p-24f;
      return sign != 0 ? -subnormal : subnormal;
    }
    const std::uint32_t widened = exponent == 0x1f ? 0xffu : exponent + 112;
    return std::bit_cast<float>(sign | widened << 23 | fraction << 13);
  }
};

struct Brain {
  std::uint16_t bits;

  operator float() const { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }
};

template <class Stored, class Out>
void convert_all(std::span<const std::byte> bytes, std::span<Out> out) {
  EVENKEEL_CHECK(bytes.size() == out.size() * sizeof(Stored));
  for (std::size_t i = 0; i < out.size(); ++i) {
    Stored stored;
    std::memcpy(&stored, bytes.data() + i * sizeof(Stored), sizeof(Stored));
    out[i] = static_cast<Out>(stored);  // NOLINT(bugprone-signed-char-misuse): a number, not a character
  }
}

// In the order of the enumeration.
template <class Out>
constexpr std::array<void (*)(std::span<const std::byte>, std::span<Out>), known.size()> conversions = {
    convert_all<std::uint8_t, Out>,  convert_all<std::uint8_t, Out>,  convert_all<std::int8_t, Out>,
    convert_all<std::uint16_t, Out>, convert_all<std::int16_t, Out>,  convert_all<std::uint32_t, Out>,
    convert_all<std::int32_t, Out>,  convert_all<std::uint64_t, Out>, convert_all<std::int64_t, Out>,
    convert_all<Half, Out>,          convert_all<Brain, Out>,         convert_all<float, Out>,
    convert_all<double, Out>};

template <class Out>
void convert(Dtype type, std::span<const std::byte> bytes, std::span<Out> out) {
  conversions<Out>[static_cast<std::size_t>(type)](bytes, out);
}

}  // namespace

std::span<const DtypeNames> dtypes() {
  return known;
}

const DtypeNames* find_dtype(std::string_view DtypeNames::*format, std::string_view name) {
  const auto* found = std::ranges::find(known, name, format);
  return found == known.end() || name.empty() ? nullptr : found;
}

std::int64_t item_size(Dtype type) {
  return known[static_cast<std::size_t>(type)].item_size;
}

std::string_view name_of(Dtype type) {
  return known[static_cast<std::size_t>(type)].name;
}

bool is_floating(Dtype type) {
  return type == Dtype::f16 || type == Dtype::bf16 || type == Dtype::f32 || type == Dtype::f64;
}

bool is_integer(Dtype type) {
  return !is_floating(type) && type != Dtype::b8;
}

void to_float(Dtype type, std::span<const std::byte> bytes, std::span<float> out) {
  convert(type, bytes, out);
}

void to_double(Dtype type, std::span<const std::byte> bytes, std::span<double> out) {
  convert(type, bytes, out);
}

std::optional<std::size_t> to_whole(Dtype type, std::span<const std::byte> bytes,
                                    std::span<std::int64_t> out) {
  if (is_integer(type)) {
    convert(type, bytes, out);
    if (type != Dtype::u64) return std::nullopt;
    // Values from 2^63 on wrap around to negative ones.
    const auto wrapped = std::ranges::find_if(out, [](std::int64_t value) { return value < 0; });
    if (wrapped == out.end()) return std::nullopt;
    return static_cast<std::size_t>(wrapped - out.begin());
  }
  std::vector<double> numbers(out.size());
  to_double(type, bytes, numbers);
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (!(std::abs(numbers[i]) <= 0x1p53) || numbers[i] != std::floor(numbers[i])) return i;
    out[i] = static_cast<std::int64_t>(numbers[i]);
  }
  return std::nullopt;
}

}  // namespace evenkeel
