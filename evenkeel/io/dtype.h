// Element types of arrays in files, and their conversion to the few that the library computes with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace evenkeel {

enum class Dtype { b8, u8, i8, u16, i16, u32, i32, u64, i64, f16, bf16, f32, f64 };

// A type, and how messages ("int32", "float16") and formats call it; empty where a format has none.
struct DtypeNames {
  Dtype type;
  std::int64_t item_size;  // bytes of one element
  std::string_view name;
  std::string_view safetensors;
  std::string_view npy;    // without the order of bytes
  std::string_view torch;  // its storage
};
// In the order of the enumeration.
std::span<const DtypeNames> dtypes();
// The type that a format calls so; nullptr where there is none.
const DtypeNames* find_dtype(std::string_view DtypeNames::*format, std::string_view name);

std::int64_t item_size(Dtype type);
std::string_view name_of(Dtype type);
bool is_integer(Dtype type);
bool is_floating(Dtype type);

// Little-endian elements of any type to float; exact for F16, BF16, F32, and for integers up to 2^24.
void to_float(Dtype type, std::span<const std::byte> bytes, std::span<float> out);
// The same to double; exact for every floating type, and for integers up to 2^53.
void to_double(Dtype type, std::span<const std::byte> bytes, std::span<double> out);
// The same to int64, as programs that count in floating point write whole numbers. Returns the place of the
// first that is not whole, or so large that it need not be exact (2^53; integers: above 2^63-1); none if all
// are.
std::optional<std::size_t> to_whole(Dtype type, std::span<const std::byte> bytes,
                                    std::span<std::int64_t> out);

}  // namespace evenkeel
