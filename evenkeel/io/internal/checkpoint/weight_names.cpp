#include "evenkeel/io/internal/checkpoint/weight_names.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>

#include "evenkeel/io/dtype.h"
#include "evenkeel/io/internal/checkpoint/tensors.h"
#include "evenkeel/io/internal/parse_error.h"

namespace evenkeel::internal {

namespace {

constexpr std::string_view block_ending = "_blocks";
constexpr std::array<std::string_view, 6> scales = {"_scale_inv",      "_scales",      ".weight_scale",
                                                    ".weight_scale_2", ".input_scale", ".weight_shape"};

bool ends_with_one_of(std::string_view name) {
  for (const std::string_view ending : scales)
    if (name.ends_with(ending)) return true;
  return false;
}

// Multiplies the last length; blocks of numbers lie on an axis of their own.
void unpack(NamedTensor& tensor, std::int64_t numbers) {
  if (tensor.shape.empty()) return;
  tensor.shape.back() *= numbers;
  if (!tensor.name.ends_with(block_ending) || tensor.shape.size() < 3) return;
  tensor.name.resize(tensor.name.size() - block_ending.size());
  const std::int64_t block = tensor.shape.back();
  tensor.shape.pop_back();
  tensor.shape.back() *= block;
}

// A shape that its bytes do not bear out is of a damaged header.
void require_whole(const SafetensorsTensor& tensor, std::int64_t number_bytes, const std::string& folder) {
  __extension__ using Wide = __int128;
  Wide bytes = number_bytes;
  for (const std::int64_t length : tensor.shape) bytes = std::min<Wide>(bytes * length, Wide{1} << 62);
  if (number_bytes > 0 && bytes != tensor.bytes())
    throw parse_error(folder, tensor.name, "has {} bytes of {}, which its shape [{}] does not make",
                      tensor.bytes(), tensor.dtype, fmt::join(tensor.shape, ", "));
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

CheckpointWeights read_checkpoint_weights(const std::string& folder) {
  CheckpointWeights found;
  int left_out = 0;
  for (const StoredTensor& stored : read_checkpoint_tensors(folder).tensors) {
    const std::string& dtype = stored.at.dtype;
    NamedTensor tensor{.name = stored.at.name, .shape = stored.at.shape};
    if (tensor.name.ends_with(".qweight"))
      throw parse_error(folder, tensor.name,
                        "is packed by GPTQ or AWQ, whose shapes are not the weights'; right would be the "
                        "checkpoint that it was made from");
    const bool packed = dtype == "I32" && tensor.name.ends_with(".weight_packed");
    const bool is_weight = dtype == "U8" || packed || dtype[0] == 'F' || dtype == "BF16";
    if (!is_weight || ends_with_one_of(tensor.name)) {
      ++left_out;
      continue;
    }
    if (const DtypeNames* const type = find_dtype(&DtypeNames::safetensors, dtype);
        type && is_floating(type->type))
      tensor.number_bytes = type->item_size;
    else if (dtype.starts_with("F8"))
      tensor.number_bytes = 1;
    require_whole(stored.at, tensor.number_bytes, folder);
    if (dtype == "U8") unpack(tensor, 2);
    if (packed) unpack(tensor, 8);
    found.tensors.push_back(std::move(tensor));
  }
  if (left_out > 0)
    found.notes.push_back(fmt::format("{} tensors of scales or ids are not counted", left_out));
  return found;
}

}  // namespace evenkeel::internal
