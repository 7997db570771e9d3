// Profiles and loads out of JSON, for the readers that share them.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "evenkeel/io/array_file.h"
#include "evenkeel/io/internal/json.h"
#include "evenkeel/routing/profile.h"

namespace evenkeel::internal {

inline constexpr std::string_view kProfileFormat = "evenkeel.profile.v1";

// A list of lists of ... of whole numbers, `levels` deep; all lists of a level are equally long.
IntArray nested_integers(const Json& list, std::size_t levels, const std::string& file,
                         const std::string& key);

// {"loads": [layer][expert], "transitions": [layer][from][to] or nothing}; a format, num_layers and
// num_experts must agree with them where they are there.
RoutingProfile profile_of_json(const Json& json, const std::string& file);

// Shapes have been checked. Throws ParseError for negative numbers and totals above 2^63-1.
RoutingProfile make_profile(const std::string& file, IntArray loads, std::optional<IntArray> transitions);

}  // namespace evenkeel::internal
