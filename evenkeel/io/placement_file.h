// Placements in JSON files, format evenkeel.placement.v1 (docs/formats.md#placement).
#pragma once

#include <map>
#include <optional>
#include <string>

#include "evenkeel/io/byte_source.h"
#include "evenkeel/plan/placement.h"

namespace evenkeel {

struct PlacementFile {
  Placement placement;
  std::optional<double> objective = {};                // the solver's result
  std::optional<double> bound = {};                    // lower bound of the objective
  std::map<std::string, std::string> provenance = {};  // the tool and the input that made it; any keys
  std::optional<int> layer_updates_per_iter = {};      // kept from a TensorRT-LLM file
};

// Throws ParseError if the file has another format, lengths are wrong, or an expert has no home or is twice
// on one rank.
PlacementFile read_placement(const ByteSource& source);

void write_placement(const PlacementFile& file, const std::string& path);

}  // namespace evenkeel
