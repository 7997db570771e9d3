// Profiles, and loads of one step, in JSON that has been parsed (docs/formats.md#loads).
#pragma once

#include <string>

#include "evenkeel/io/internal/json.h"
#include "evenkeel/io/loads_file.h"

namespace evenkeel::internal {

// Whether the JSON is a profile, {"loads": [layer][expert]}, rather than the loads of one step.
bool has_layers(const Json& json);
// {"loads": [layer][expert], "transitions": [layer][from][to] or nothing}; a format, num_layers and
// num_experts must agree with them where they are there.
RoutingProfile profile_of_json(const Json& json, const std::string& file);
// As read_loads() says; `file` is how messages call it.
Counts counts_of_json(const Json& json, const LoadsOptions& options, const std::string& file);

}  // namespace evenkeel::internal
