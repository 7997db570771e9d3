#include "evenkeel/io/internal/checkpoint/weight_names.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <ranges>
#include <string_view>
#include <utility>

#include "evenkeel/io/internal/checkpoint/tensors.h"
#include "evenkeel/io/internal/parse_error.h"

namespace evenkeel::internal {

namespace {

constexpr std::string_view block_ending = "_blocks";
constexpr std::string_view packed_ending = "_packed";
// Endings of tensors that are not weights: parts of quantized weights, and tables that a model recomputes.
constexpr std::array<std::string_view, 13> no_weights = {
    "_scale_inv", "_scales", "weight_scale", "weight_scale_2", "input_scale", "output_scale", "q_scale",
    "k_scale",    "v_scale", "weight_shape", "_zero_point",    ".inv_freq",   ".g_idx"};
constexpr std::array<std::pair<std::string_view, int>, 18> dtype_bits = {{{"F64", 64},
                                                                          {"F32", 32},
                                                                          {"F16", 16},
                                                                          {"BF16", 16},
                                                                          {"F8_E4M3", 8},
                                                                          {"F8_E5M2", 8},
                                                                          {"F8_E8M0", 8},
                                                                          {"F6_E2M3", 6},
                                                                          {"F6_E3M2", 6},
                                                                          {"F4", 4},
                                                                          {"I64", 64},
                                                                          {"U64", 64},
                                                                          {"I32", 32},
                                                                          {"U32", 32},
                                                                          {"I16", 16},
                                                                          {"U16", 16},
                                                                          {"I8", 8},
                                                                          {"U8", 8}}};

bool is_no_weight(std::string_view name) {
  return std::ranges::any_of(no_weights, [&](std::string_view ending) { return name.ends_with(ending); });
}

// Multiplies the last length by `numbers`. If blocks have their own (last) axis, merges it with the axis
// before.
void unpack(NamedTensor& tensor, std::int64_t numbers) {
  if (tensor.shape.empty()) return;
  tensor.shape.back() *= numbers;
  if (!tensor.name.ends_with(block_ending) || tensor.shape.size() < 3) return;
  tensor.name.resize(tensor.name.size() - block_ending.size());
  const std::int64_t block = tensor.shape.back();
  tensor.shape.pop_back();
  tensor.shape.back() *= block;
}

// Bits of one number. Throws ParseError for an unknown type, or if the shape does not match the number of
// bytes, as in a damaged header.
int bits_of(const SafetensorsTensor& tensor, const std::string& folder) {
  __extension__ using Wide = __int128;
  const auto known = std::ranges::find(dtype_bits, tensor.dtype, &std::pair<std::string_view, int>::first);
  if (known == dtype_bits.end())
    throw parse_error(folder, tensor.name, "is of type '{}'; known: {}", tensor.dtype,
                      fmt::join(dtype_bits | std::views::keys, ", "));
  Wide bits = known->second;
  for (const std::int64_t length : tensor.shape)
    bits = length < 0 ? -1 : std::min<Wide>(bits * length, Wide{1} << 62);
  if ((bits + 7) / 8 != tensor.bytes() || bits < 0)
    throw parse_error(folder, tensor.name, "has {} bytes of {}, which do not fit its shape [{}]",
                      tensor.bytes(), tensor.dtype, fmt::join(tensor.shape, ", "));
  return known->second;
}

void require_readable(const std::string& name, const std::string& folder) {
  for (const auto& [ending, packer] :
       {std::pair{".qweight", "GPTQ or AWQ"}, std::pair{".absmax", "bitsandbytes"}})
    if (name.ends_with(ending))
      throw parse_error(
          folder, name,
          "is packed by {}, so its shape is not that of the weights; give the checkpoint it was made from",
          packer);
}

}  // namespace

bool has_checkpoint(const std::string& folder) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error))
    if (const std::string name = entry.path().filename();
        name == whole_checkpoint || name.ends_with(index_ending))
      return true;
  return false;
}

CheckpointWeights read_checkpoint_weights(const std::string& folder, int packed_bits) {
  CheckpointWeights found;
  int left_out = 0;
  for (const StoredTensor& stored : read_checkpoint_tensors(folder).tensors) {
    const std::string& dtype = stored.at.dtype;
    NamedTensor tensor{.name = stored.at.name, .shape = stored.at.shape};
    require_readable(tensor.name, folder);
    const int bits = bits_of(stored.at, folder);
    const bool packed = tensor.name.ends_with(packed_ending);
    if (packed) tensor.name.resize(tensor.name.size() - packed_ending.size());
    const bool is_scale = dtype == "F8_E8M0" || is_no_weight(tensor.name);
    // Integers are ids, except packed numbers and those of 8 bits.
    if (is_scale || (!packed && (dtype[0] == 'I' || dtype[0] == 'U') && bits > 8)) {
      ++left_out;
      continue;
    }
    if (packed && dtype == "I32")
      unpack(tensor, 32 / packed_bits);
    else if (dtype == "U8")
      unpack(tensor, 2);
    else if (bits % 8 == 0)
      tensor.number_bytes = bits / 8;
    found.tensors.push_back(std::move(tensor));
  }
  if (left_out > 0)
    found.notes.push_back(fmt::format("{} tensors of scales or ids are not counted", left_out));
  return found;
}

}  // namespace evenkeel::internal
