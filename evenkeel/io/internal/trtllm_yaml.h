// The map of a TensorRT-LLM load balancer in YAML (or JSON, which is YAML): numbers by name, and lists of
// experts by layer. It is a file of its own, or stands somewhere in a larger file of options.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "evenkeel/io/byte_source.h"
#include "evenkeel/io/internal/physical_rows.h"

namespace evenkeel::internal {

inline constexpr std::string_view assignments_key = "initial_global_assignments";

struct TrtllmYaml {
  std::map<std::string, std::int64_t> numbers;
  std::map<std::int64_t, PhysicalRow> assignments;  // by layer
};

// Whether the first key of a text is one of a balancer's.
bool begins_like_trtllm_yaml(std::string_view head);
// Whether a text has the key of the assignments anywhere. Reads all of it, in pieces.
bool mentions_trtllm_map(const ByteSource& source);
// Throws ParseError with the line's number.
TrtllmYaml parse_trtllm_yaml(const ByteSource& source);

}  // namespace evenkeel::internal
