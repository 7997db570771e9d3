#include "evenkeel/io/internal/expert_map_shape.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "evenkeel/base/error.h"
#include "evenkeel/io/internal/shape.h"

namespace evenkeel::internal {

bool looks_like_expert_map(std::span<const std::int64_t> shape, std::span<const std::int64_t> values) {
  if (shape.size() != 2 || shape[1] < 2 || values.empty()) return false;
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  if (*least != 0 || *most < 1 || *most >= shape[1]) return false;
  const std::int64_t experts = *most + 1;
  std::vector<std::int64_t> seen_in(static_cast<std::size_t>(experts), -1);
  for (std::int64_t row = 0; row < shape[0]; ++row) {
    std::int64_t found = 0;
    for (std::int64_t i = 0; i < shape[1]; ++i) {
      const std::int64_t id = values[static_cast<std::size_t>(row * shape[1] + i)];
      std::int64_t& seen = seen_in[static_cast<std::size_t>(id)];
      found += seen == row ? 0 : 1;
      seen = row;
    }
    if (found != experts) return false;
  }
  return true;
}

void ask_about_expert_map(std::span<const std::int64_t> shape, const std::string& file) {
  throw InvalidArgument(
      "as",
      fmt::format(
          "{}: every row of the {} numbers has every id from 0 on, as a placement has, a map of physical "
          "experts; they may also be counts of {} layers",
          file, to_text(shape), shape[0]),
      "counts; for a placement save it as {'physical_to_logical_map': tensor} instead");
}

}  // namespace evenkeel::internal
