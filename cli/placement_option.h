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

// The homes for one layer of `loads`, which has the layer asked for (`layer`, as people call it) or is one
// layer. By number where both know theirs, else row by row; a placement of one layer without a number serves
// any. Throws InvalidArgument, naming both sides, where they do not fit, or if it is for other experts or
// ranks.
LayerPlacement layer_of(const Placement& placement, const std::string& path, const NumberedRows& loads,
                        std::optional<std::int64_t> layer, int num_experts, int num_ranks);

}  // namespace evenkeel::cli
