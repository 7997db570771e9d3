#include "evenkeel/model/weights.h"

#include <algorithm>
#include <functional>
#include <numeric>

namespace evenkeel {

std::int64_t product(std::span<const std::int64_t> lengths) {
  return std::accumulate(lengths.begin(), lengths.end(), std::int64_t{1}, std::multiplies<>());
}

std::int64_t Weight::numbers() const {
  return product(shape);
}

std::vector<std::int64_t> shape_on_device(const Weight& weight, const WeightCut& cut) {
  std::vector<std::int64_t> shape = weight.shape;
  const auto divide = [&](int axis, std::int64_t parts) {
    std::int64_t& length = shape[static_cast<std::size_t>(axis)];
    length = (length + parts - 1) / parts;
  };
  const bool routed = weight.kind == WeightKind::experts;
  if (routed) divide(0, cut.expert);
  if (weight.axis == uncut) return shape;
  const std::int64_t parts = routed ? cut.expert_tensor : cut.tensor;
  divide(weight.axis, weight.max_parts > 0 ? std::min(parts, weight.max_parts) : parts);
  return shape;
}

}  // namespace evenkeel
