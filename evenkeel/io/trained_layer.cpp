#include "evenkeel/io/trained_layer.h"

#include <algorithm>
#include <cmath>

#include "evenkeel/io/array_file.h"
#include "evenkeel/io/byte_source.h"
#include "evenkeel/io/internal/parse_error.h"
#include "evenkeel/io/internal/shape.h"

namespace evenkeel {

using namespace internal;

namespace {

constexpr std::int64_t max_length = std::int64_t{1} << 24;

// Reads arrays and holds their shapes against each other.
class LayerArrays {
 public:
  explicit LayerArrays(const ByteSource& source) : file_(open_array_file(source)) {}

  // A length that other shapes are then measured by.
  int length(const char* array, std::size_t dimension, std::size_t dimensions) const {
    const ArrayInfo& info = file_->at(array);
    if (info.shape.size() != dimensions || info.shape[dimension] < 1 || info.shape[dimension] > max_length)
      throw parse_error(file_->name(), array, "shape {}; {} dimensions of 1 or more are needed",
                        to_text(info.shape), dimensions);
    return static_cast<int>(info.shape[dimension]);
  }
  std::vector<float> floats(const char* array, const std::vector<std::int64_t>& shape) const {
    require_shape(array, shape);
    std::vector<float> values = read_floats(*file_, array).values;
    const auto bad = std::ranges::find_if_not(values, [](float value) { return std::isfinite(value); });
    if (bad != values.end())
      throw parse_error(file_->name(), array, "element {} is {} as F32; a layer is made of finite numbers",
                        element_at(bad - values.begin(), shape), *bad);
    return values;
  }
  std::vector<std::int32_t> ids(const char* array, const std::vector<std::int64_t>& shape,
                                int num_experts) const {
    require_shape(array, shape);
    std::vector<std::int32_t> ids;
    for (std::int64_t id : read_integers(*file_, array).values) {
      if (id < 0 || id >= num_experts)
        throw parse_error(file_->name(), array, "expert id {} is outside 0..{}", id, num_experts - 1);
      ids.push_back(static_cast<std::int32_t>(id));
    }
    return ids;
  }

 private:
  // "[3, 0, 17]".
  static std::string element_at(std::int64_t index, std::vector<std::int64_t> shape) {
    for (std::size_t dimension = shape.size(); dimension-- > 0;) {
      const std::int64_t length = shape[dimension];
      shape[dimension] = index % length;
      index /= length;
    }
    return to_text(shape);
  }
  void require_shape(const char* array, const std::vector<std::int64_t>& shape) const {
    const ArrayInfo& info = file_->at(array);
    if (info.shape != shape)
      throw parse_error(file_->name(), array, "shape {} does not fit the other arrays; {} would",
                        to_text(info.shape), to_text(shape));
  }

  std::unique_ptr<ArrayFile> file_;
};

}  // namespace

TrainedLayer read_trained_layer(const ByteSource& source) {
  const LayerArrays arrays(source);
  TrainedLayer layer;
  layer.num_experts = arrays.length("experts.down.weight", 0, 3);
  layer.hidden = arrays.length("experts.down.weight", 1, 3);
  layer.intermediate = arrays.length("experts.down.weight", 2, 3);
  layer.num_tokens = arrays.length("topk_ids", 0, 2);
  layer.top_k = arrays.length("topk_ids", 1, 2);
  const std::int64_t experts = layer.num_experts;
  const std::int64_t hidden = layer.hidden;
  const std::int64_t intermediate = layer.intermediate;
  layer.down = arrays.floats("experts.down.weight", {experts, hidden, intermediate});
  layer.gate_up = arrays.floats("experts.gate_up.weight", {experts, 2 * intermediate, hidden});
  layer.router = arrays.floats("router.weight", {experts, hidden});
  layer.input = arrays.floats("input", {layer.num_tokens, hidden});
  layer.output = arrays.floats("output", {layer.num_tokens, hidden});
  layer.topk_ids = arrays.ids("topk_ids", {layer.num_tokens, layer.top_k}, layer.num_experts);
  layer.topk_weights = arrays.floats("topk_weights", {layer.num_tokens, layer.top_k});
  return layer;
}

}  // namespace evenkeel
