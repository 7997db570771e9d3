// Element types of arrays in files, and their conversion to the types that the library computes with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace evenkeel {

enum class Dtype { b8, u8, i8, u16, i16, u32, i32, u64, i64, f16, bf16, f32, f64 };

// A type and its names in messages ("int32", "float16") and formats; empty if a format lacks the type.
struct DtypeNames {
  Dtype type;
  std::int64_t item_size;  // bytes of one element
  std::string_view name;
  std::string_view safetensors;
  std::string_view npy;    // without the byte order
  std::string_view torch;  // the name of torch's storage class
};
// In the order of the enumeration.
std::span<const DtypeNames> dtypes();
// Finds a type by its name in a format; nullptr if there is none.
const DtypeNames* find_dtype(std::string_view DtypeNames::*format, std::string_view name);

std::int64_t item_size(Dtype type);
std::string_view name_of(Dtype type);
bool is_integer(Dtype type);
bool is_floating(Dtype type);

// Converts little-endian elements of any type to float; exact for F16, BF16, F32 and integers up to 2^24.
void to_float(Dtype type, std::span<const std::byte> bytes, std::span<float> out);
// Converts to double; exact for every floating type, and for integers up to 2^53.
void to_double(Dtype type, std::span<const std::byte> bytes, std::span<double> out);
// Converts to int64; allows floating types, since some programs write counts as floating point. Returns the
// index of the first element that is not a whole number or is too large (floating: above 2^53, integers:
// above 2^63-1); nullopt if all fit.
std::optional<std::size_t> to_whole(Dtype type, std::span<const std::byte> bytes,
                                    std::span<std::int64_t> out);

}  // namespace evenkeel
