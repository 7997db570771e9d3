// --moe-layers, --model and --num-hidden-layers: which of the model's layers the rows of a file are.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "evenkeel/io/model_layers.h"
#include "evenkeel/io/placement_format.h"
#include "evenkeel/io/routing_file.h"

namespace evenkeel::cli {

struct Numbering {
  std::string moe_layers;
  std::string model;
  std::int64_t num_hidden_layers = 0;

  std::optional<std::vector<int>> layers() const;
  std::optional<ModelLayers> read_model() const;
};

// --moe-layers and --model.
void add_numbering(CLI::App& app, Numbering& numbering);
void add_hidden_layers(CLI::App& app, Numbering& numbering);
// Throws InvalidArgument where two of them say the same thing.
void require_one_numbering(const CLI::App& app);

// Both with what was said of layers.
RoutingOptions numbered(RoutingOptions options, const Numbering& numbering);
PlacementFormatOptions numbered(PlacementFormatOptions options, const Numbering& numbering);

// Notes, on stderr, of content that was read otherwise than it stands in a file.
void say_notes(const std::string& file, const std::vector<std::string>& notes);

}  // namespace evenkeel::cli
