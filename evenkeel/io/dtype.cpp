#include "evenkeel/io/dtype.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>
#include <vector>

#include "evenkeel/base/check.h"

namespace evenkeel {

namespace {

static_assert(std::endian::native == std::endian::little,
              "files are little-endian, and so far so are our machines");

struct Half {
  std::uint16_t bits;
};
struct Brain {
  std::uint16_t bits;
};

float widen(Half half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half.bits & 0x8000u) << 16;
  const std::uint32_t exponent = (half.bits >> 10) & 0x1fu;
  const std::uint32_t fraction = half.bits & 0x3ffu;
  if (exponent == 0) {
    const float subnormal = static_cast<float>(fraction) * 0x1p-24f;
    return sign != 0 ? -subnormal : subnormal;
  }
  const std::uint32_t widened = exponent == 0x1f ? 0xffu : exponent + 112;
  return std::bit_cast<float>(sign | widened << 23 | fraction << 13);
}

float widen(Brain brain) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(brain.bits) << 16);
}

template <class Stored>
float as_float(Stored stored) {
  if constexpr (std::is_same_v<Stored, Half> || std::is_same_v<Stored, Brain>) {
    return widen(stored);
  } else {
    return static_cast<float>(stored);
  }
}

template <class Stored, class Out, class Convert>
void convert_all(std::span<const std::byte> bytes, std::span<Out> out, Convert convert) {
  EVENKEEL_CHECK(bytes.size() == out.size() * sizeof(Stored));
  for (std::size_t i = 0; i < out.size(); ++i) {
    Stored stored;
    std::memcpy(&stored, bytes.data() + i * sizeof(Stored), sizeof(Stored));
    out[i] = convert(stored);
  }
}

}  // namespace

std::int64_t item_size(Dtype type) {
  switch (type) {
    case Dtype::b8:
    case Dtype::u8:
    case Dtype::i8:
      return 1;
    case Dtype::u16:
    case Dtype::i16:
    case Dtype::f16:
    case Dtype::bf16:
      return 2;
    case Dtype::u32:
    case Dtype::i32:
    case Dtype::f32:
      return 4;
    case Dtype::u64:
    case Dtype::i64:
    case Dtype::f64:
      return 8;
  }
  return 1;
}

std::string_view name_of(Dtype type) {
  switch (type) {
    case Dtype::b8:
      return "bool";
    case Dtype::u8:
      return "uint8";
    case Dtype::i8:
      return "int8";
    case Dtype::u16:
      return "uint16";
    case Dtype::i16:
      return "int16";
    case Dtype::u32:
      return "uint32";
    case Dtype::i32:
      return "int32";
    case Dtype::u64:
      return "uint64";
    case Dtype::i64:
      return "int64";
    case Dtype::f16:
      return "float16";
    case Dtype::bf16:
      return "bfloat16";
    case Dtype::f32:
      return "float32";
    case Dtype::f64:
      return "float64";
  }
  return "unknown";
}

bool is_floating(Dtype type) {
  return type == Dtype::f16 || type == Dtype::bf16 || type == Dtype::f32 || type == Dtype::f64;
}

bool is_integer(Dtype type) {
  return !is_floating(type) && type != Dtype::b8;
}

namespace {

void convert_integers(Dtype type, std::span<const std::byte> bytes, std::span<std::int64_t> out) {
  const auto convert = [](auto stored) { return static_cast<std::int64_t>(stored); };
  switch (type) {
    case Dtype::u8:
      return convert_all<std::uint8_t>(bytes, out, convert);
    case Dtype::i8:
      return convert_all<std::int8_t>(bytes, out, convert);
    case Dtype::u16:
      return convert_all<std::uint16_t>(bytes, out, convert);
    case Dtype::i16:
      return convert_all<std::int16_t>(bytes, out, convert);
    case Dtype::u32:
      return convert_all<std::uint32_t>(bytes, out, convert);
    case Dtype::i32:
      return convert_all<std::int32_t>(bytes, out, convert);
    case Dtype::u64:
      return convert_all<std::uint64_t>(bytes, out, convert);
    case Dtype::i64:
      return convert_all<std::int64_t>(bytes, out, convert);
    default:
      EVENKEEL_CHECK(is_integer(type));
  }
}

}  // namespace

std::optional<std::size_t> to_int64(Dtype type, std::span<const std::byte> bytes,
                                    std::span<std::int64_t> out) {
  convert_integers(type, bytes, out);
  if (type != Dtype::u64) return std::nullopt;
  // From 2^63 on the conversion wraps around.
  const auto wrapped = std::find_if(out.begin(), out.end(), [](std::int64_t value) { return value < 0; });
  if (wrapped == out.end()) return std::nullopt;
  return static_cast<std::size_t>(wrapped - out.begin());
}

namespace {

// convert(stored) for each element, whatever its type.
template <class Out, class Convert>
void convert_elements(Dtype type, std::span<const std::byte> bytes, std::span<Out> out, Convert convert) {
  switch (type) {
    case Dtype::b8:
    case Dtype::u8:
      return convert_all<std::uint8_t>(bytes, out, convert);
    case Dtype::i8:
      return convert_all<std::int8_t>(bytes, out, convert);
    case Dtype::u16:
      return convert_all<std::uint16_t>(bytes, out, convert);
    case Dtype::i16:
      return convert_all<std::int16_t>(bytes, out, convert);
    case Dtype::u32:
      return convert_all<std::uint32_t>(bytes, out, convert);
    case Dtype::i32:
      return convert_all<std::int32_t>(bytes, out, convert);
    case Dtype::u64:
      return convert_all<std::uint64_t>(bytes, out, convert);
    case Dtype::i64:
      return convert_all<std::int64_t>(bytes, out, convert);
    case Dtype::f16:
      return convert_all<Half>(bytes, out, convert);
    case Dtype::bf16:
      return convert_all<Brain>(bytes, out, convert);
    case Dtype::f32:
      return convert_all<float>(bytes, out, convert);
    case Dtype::f64:
      return convert_all<double>(bytes, out, convert);
  }
}

}  // namespace

void to_float(Dtype type, std::span<const std::byte> bytes, std::span<float> out) {
  convert_elements(type, bytes, out, [](auto stored) { return as_float(stored); });
}

void to_double(Dtype type, std::span<const std::byte> bytes, std::span<double> out) {
  convert_elements(type, bytes, out, [](auto stored) {
    if constexpr (std::is_arithmetic_v<decltype(stored)>)
      return static_cast<double>(stored);
    else
      return static_cast<double>(widen(stored));
  });
}

std::optional<std::size_t> to_whole(Dtype type, std::span<const std::byte> bytes,
                                    std::span<std::int64_t> out) {
  if (is_integer(type)) return to_int64(type, bytes, out);
  std::vector<double> numbers(out.size());
  if (type == Dtype::f64) {
    std::memcpy(numbers.data(), bytes.data(), bytes.size());
  } else {
    std::vector<float> floats(out.size());
    to_float(type, bytes, floats);
    std::copy(floats.begin(), floats.end(), numbers.begin());
  }
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (!(std::abs(numbers[i]) <= 0x1p53) || numbers[i] != std::floor(numbers[i])) return i;
    out[i] = static_cast<std::int64_t>(numbers[i]);
  }
  return std::nullopt;
}

}  // namespace evenkeel
