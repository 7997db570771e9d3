// Converts any readable file to any writable format.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "evenkeel/io/placement_format.h"
#include "evenkeel/io/read_recording.h"

namespace evenkeel {

struct ConvertOptions {
  // How routing is read; num_experts also applies to a placement in another system's format. `layers` and
  // `model` are ignored; `placement` has those.
  ReadOptions reading = {};
  // For placements: the format to write (default: evenkeel), and options of the formats read and written.
  std::optional<PlacementFormat> to = {};
  PlacementFormatOptions placement = {};
};

struct Converted {
  std::string what;     // "trace", "profile", "loads", "counts", "recording", "statistics", "placement"
  std::string from;     // "npz", "sglang"
  std::string to;       // "safetensors"
  LayerNumbers layers;  // which of the model's layers these are, if the file says it
  std::vector<std::string> notes = {};  // what was read or written differently from the file
  std::string axes = {};                // for arrays without names: how their dimensions were read
};

// Reads `in` (a file, or a folder that read_recording() accepts) by content and writes `out`. Routing
// recorded token by token is written as a trace, other routing as a profile. The extension of `out` gives the
// format:
//   trace              .safetensors, .npz, .npy (ids only)
//   profile, counts    .safetensors, .npz, .json
//   JSON loads, counts .json, and .safetensors or .npz as a profile of one layer
// A placement is written in the format options.to; our own needs the extension .json. Throws ParseError if
// `in` is none of these, InvalidArgument for another extension, or an option that does not fit or has no
// effect here. `out` appears whole or not at all, and may be `in` itself. Only users who can read `in` can
// read a new file.
Converted convert_file(const std::string& in, const std::string& out, const ConvertOptions& options = {});

}  // namespace evenkeel
