// Any readable file to any writable format.
#pragma once

#include <optional>
#include <string>

namespace evenkeel {

struct ConvertOptions {
  // For a trace that does not say it.
  std::optional<int> num_experts = {};
};

struct Converted {
  std::string what;  // "trace", "profile", "loads", "placement"
  std::string from;  // "npz"
  std::string to;    // "safetensors"
};

// Reads `in` by content and writes `out` in the format its extension names:
//   trace              .safetensors, .npz, .npy (ids alone)
//   profile            .safetensors, .npz, .json
//   JSON loads, counts .json, and .safetensors or .npz as a profile of one layer
//   placement          .json
// Throws ParseError if `in` is none of these, InvalidArgument for any other extension. `out` appears whole or
// not at all, and may be `in` itself.
Converted convert_file(const std::string& in, const std::string& out, const ConvertOptions& options = {});

}  // namespace evenkeel
