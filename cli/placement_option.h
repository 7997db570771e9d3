// --placement FILE: the homes of the experts of one layer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "evenkeel/plan/placement.h"

namespace evenkeel::cli {

// "evenkeel", "sglang"...: what --format and --to take, in the order of placement_formats().
std::vector<std::string> placement_format_names();

// Any format that is read (docs/formats.md), by content; some do not say how many ranks there are.
Placement read_placement_file(const std::string& path, std::optional<int> num_ranks = {});

// The homes for the layer of the loads that is asked for, or their only one (Placement::row_for()). Throws
// InvalidArgument if there is none such, or if the placement is for other experts or ranks.
LayerPlacement layer_of(const Placement& placement, const std::string& path, const NumberedRows& loads,
                        std::optional<std::int64_t> layer, int num_experts, int num_ranks);

}  // namespace evenkeel::cli
