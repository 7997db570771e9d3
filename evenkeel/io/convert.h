// Any readable file to any writable format.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "evenkeel/io/placement_format.h"
#include "evenkeel/io/read_recording.h"

namespace evenkeel {

struct ConvertOptions {
  // Says how routing is read; num_experts is also that of a placement in another system's format. Layers and
  // model are those of `placement`.
  ReadOptions reading = {};
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
  std::string axes = {};                // of numbers that nobody named: how they were read
};

// Reads `in` (a file, or a folder as read_recording() takes it) by content and writes `out`. What was
// recorded by token is a trace, other routing a profile; the extension of `out` names the format:
//   trace              .safetensors, .npz, .npy (ids alone)
//   profile, counts    .safetensors, .npz, .json
//   JSON loads, counts .json, and .safetensors or .npz as a profile of one layer
// A placement is written in the format that options.to says, ours in .json. Throws ParseError if `in` is none
// of these, InvalidArgument for any other extension or an option that does not fit or means nothing here.
// `out` appears whole or not at all, and may be `in` itself. A new file is open to nobody who cannot read
// `in`.
Converted convert_file(const std::string& in, const std::string& out, const ConvertOptions& options = {});

}  // namespace evenkeel
