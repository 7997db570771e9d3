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

namespace {

std::string allowed_layers(const Placement& placement) {
  if (placement.layers().known()) return to_text(placement.layers());
  return fmt::format("0..{}", placement.num_layers() - 1);
}

// What people call the layer of the loads: its number, else what --layer says, else none.
std::optional<int> number_of(const NumberedRows& loads, std::optional<std::int64_t> layer) {
  if (loads.num_rows == 1 && loads.layers.known()) return loads.layers.number_of(0);
  if (layer) return static_cast<int>(*layer);
  return std::nullopt;
}

}  // namespace

LayerPlacement layer_of(const Placement& placement, const std::string& path, const NumberedRows& loads,
                        std::optional<std::int64_t> layer, int num_experts, int num_ranks) {
  if (placement.num_experts() != num_experts || placement.num_ranks() != num_ranks)
    throw InvalidArgument(
        "--placement",
        fmt::format("is for {} experts on {} ranks", placement.num_experts(), placement.num_ranks()),
        fmt::format("one for {} experts on {} ranks", num_experts, num_ranks));
  const bool serves_any = placement.num_layers() == 1 && !placement.layers().known();
  if (serves_any) return placement.layer(0);
  const bool by_number = loads.layers.known() && placement.layers().known();
  if (!by_number && loads.num_rows > 1)
    paired_rows(loads, {path, placement.layers(), placement.num_layers()}, "--placement");
  const std::optional<int> number = number_of(loads, layer);
  if (!number)
    throw InvalidArgument("--layer", fmt::format("the placement has {} layers", placement.num_layers()),
                          allowed_layers(placement));
  // Of two that are paired row by row, the loads say which row it is.
  const auto row = by_number || loads.num_rows == 1
                       ? placement.layers().row_of(*number, placement.num_layers())
                       : loads.layers.row_of(*number, loads.num_rows);
  if (!row)
    throw InvalidArgument(
        "--placement",
        fmt::format("{} has {}, and the loads are of layer {} ({})", path,
                    described(placement.layers(), placement.num_layers()), *number, loads.name),
        "a placement for that layer");
  return placement.layer(*row);
}

}  // namespace evenkeel::cli
