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
  std::optional<double> objective = {};                // what the solver reached
  std::optional<double> bound = {};                    // and what nobody can go below
  std::map<std::string, std::string> provenance = {};  // who made it from what; free keys
  std::optional<int> layer_updates_per_iter = {};      // TensorRT-LLM's, where its file said it
};

// Throws ParseError: not this format, wrong lengths, an expert without a home or twice on one rank.
PlacementFile read_placement(const ByteSource& source);

void write_placement(const PlacementFile& file, const std::string& path);

}  // namespace evenkeel
