#include "cli/placement_option.h"

#include <fmt/format.h>

#include "evenkeel/base/error.h"
#include "evenkeel/io/placement_format.h"

namespace evenkeel::cli {

std::vector<std::string> placement_format_names() {
  std::vector<std::string> names;
  for (PlacementFormat format : placement_formats()) names.emplace_back(name_of(format));
  return names;
}

Placement read_placement_file(const std::string& path, std::optional<int> num_ranks) {
  return read_placement_as(path, {.num_ranks = num_ranks}).placement;
}

LayerPlacement layer_of(const Placement& placement, const std::string& path, const NumberedRows& loads,
                        std::optional<std::int64_t> layer, int num_experts, int num_ranks) {
  if (placement.num_experts() != num_experts || placement.num_ranks() != num_ranks)
    throw InvalidArgument(
        "--placement",
        fmt::format("is for {} experts on {} ranks", placement.num_experts(), placement.num_ranks()),
        fmt::format("one for {} experts on {} ranks", num_experts, num_ranks));
  const auto number = layer ? std::optional(static_cast<int>(*layer)) : std::nullopt;
  return placement.layer(placement.row_for(loads, number, path));
}

}  // namespace evenkeel::cli
