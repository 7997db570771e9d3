// Loads of one step in JSON that has been parsed (docs/formats.md#loads).
#pragma once

#include <string>

#include "evenkeel/io/internal/json.h"
#include "evenkeel/io/loads_file.h"

namespace evenkeel::internal {

// As read_loads() says; `file` is how messages call it.
Counts counts_of_json(const Json& json, const LoadsOptions& options, const std::string& file);

}  // namespace evenkeel::internal
