#include "evenkeel/io/internal/checkpoint/weight_names.h"

#include <fmt/format.h>

#include <array>
#include <filesystem>
#include <string_view>

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
    if (dtype == "U8") unpack(tensor, 2);
    if (packed) unpack(tensor, 8);
    found.tensors.push_back(std::move(tensor));
  }
  if (left_out > 0)
    found.notes.push_back(fmt::format("{} tensors of scales or ids are not counted", left_out));
  return found;
}

}  // namespace evenkeel::internal
