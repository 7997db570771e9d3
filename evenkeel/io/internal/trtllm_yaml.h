// The little of YAML that a TensorRT-LLM load balancer's file is made of: numbers by name, and lists of
// numbers by layer.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "evenkeel/io/byte_source.h"
#include "evenkeel/io/internal/physical_rows.h"

namespace evenkeel::internal {

struct TrtllmYaml {
  std::map<std::string, std::int64_t> numbers;
  std::map<std::int64_t, PhysicalRow> assignments;  // by layer
};

// Whether the first line that says something begins as such a file does.
bool begins_like_trtllm_yaml(std::string_view head);
// Throws ParseError with the line's number.
TrtllmYaml parse_trtllm_yaml(const ByteSource& source);

}  // namespace evenkeel::internal
