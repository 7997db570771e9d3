// The map of physical to logical experts that SGLang's --init-expert-location loads, from JSON or from a file
// of torch.save: both are a dictionary with `physical_to_logical_map`.
#pragma once

#include <memory>

#include "evenkeel/io/array_file.h"
#include "evenkeel/io/byte_source.h"

namespace evenkeel::internal {

inline constexpr const char* kSglangMapKey = "physical_to_logical_map";

// Whether a file of torch.save is such a dictionary; false if it cannot be read.
bool is_sglang_map_file(const std::shared_ptr<const ByteSource>& source);

// [hidden layers, physical experts]. Throws ParseError: no such key, or another shape.
IntArray read_sglang_map(const std::shared_ptr<const ByteSource>& source);

}  // namespace evenkeel::internal
