// Any readable file to any writable format.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "evenkeel/io/placement_format.h"
#include "evenkeel/io/routing_file.h"

namespace evenkeel {

struct ConvertOptions {
  // For files that do not say it: of a trace, and of a placement in another system's format.
  std::optional<int> num_experts = {};
  // How a bare array of two dimensions is read.
  RoutingOptions::Bare bare = RoutingOptions::Bare::ask;
  // Of placements: the format to write, ours where nobody says, and what that or the one read needs.
  std::optional<PlacementFormat> to = {};
  PlacementFormatOptions placement = {};
};

struct Converted {
  std::string what;     // "trace", "profile", "loads", "counts", "recording", "statistics", "placement"
  std::string from;     // "npz", "sglang"
  std::string to;       // "safetensors"
  LayerNumbers layers;  // which of the model's layers these are, where the file says it
  std::vector<std::string> notes = {};  // what was read or written otherwise than it stands there
};

// Reads `in` (a file, or a folder as open_routing() takes it) by content and writes `out`. What was recorded
// by token is a trace, other routing a profile; the extension of `out` names the format:
//   trace              .safetensors, .npz, .npy (ids alone)
//   profile, counts    .safetensors, .npz, .json
//   JSON loads, counts .json, and .safetensors or .npz as a profile of one layer
// A placement is written in the format that options.to says, ours in .json. Throws ParseError if `in` is none
// of these, InvalidArgument for any other extension or an option that does not fit or means nothing here.
// `out` appears whole or not at all, and may be `in` itself.
Converted convert_file(const std::string& in, const std::string& out, const ConvertOptions& options = {});

}  // namespace evenkeel
