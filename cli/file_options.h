// Options for what a routing or placement file does not say itself.
#pragma once

#include <CLI/CLI.hpp>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "evenkeel/io/placement_format.h"
#include "evenkeel/io/read_recording.h"

namespace evenkeel::cli {

struct FileArguments {
  std::string as;
  std::string axes;
  std::string columns;
  std::optional<int> num_experts;
  std::string moe_layers;
  std::string model;
  std::optional<int> num_hidden_layers;

  // reading() and placement() read the model's config. They throw InvalidArgument.
  ReadOptions reading() const;
  PlacementFormatOptions placement() const;
  // The file of --model, which may also be given as its folder.
  std::vector<std::string> model_files() const { return {model, model + "/config.json"}; }
};

// --num-experts; --axes with --columns and --as; --moe-layers with --model; --num-hidden-layers.
void add_num_experts(CLI::App& app, FileArguments& arguments);
void add_axes(CLI::App& app, FileArguments& arguments);
void add_numbering(CLI::App& app, FileArguments& arguments);
void add_hidden_layers(CLI::App& app, FileArguments& arguments);
// Throws InvalidArgument if two options give the model's number of layers.
void require_one_numbering(const CLI::App& app);

// Prints on stderr the notes on what the reader interpreted or left out.
void say_notes(const std::string& file, const std::vector<std::string>& notes);
void say_notes(std::span<const Recording> recordings);
// Adds, by file, the order of dimensions in which an unnamed array was read.
void add_axes_of(std::span<const Recording> recordings, std::map<std::string, std::string>& axes);

// Throws InvalidArgument, naming option `argument`, if writing `output` would overwrite an input: a
// recording, a file in a recording's folder, or one of `others`.
void require_not_read(const std::string& output, const std::string& argument,
                      const std::vector<std::string>& recordings, const std::vector<std::string>& others);

// Reads a placement of any supported format (docs/formats.md), recognised by content. Some formats lack the
// number of ranks and need `num_ranks`.
Placement read_placement_file(const std::string& path, std::optional<int> num_ranks = {});
// --dispatch; empty if it is not given.
void add_dispatch(CLI::App& app, std::string& dispatch);
// The homes for layer `layer` of the loads, or for their only layer (Placement::row_for()). Throws
// InvalidArgument if the placement lacks the layer, or has another number of experts or ranks.
LayerPlacement layer_of(const Placement& placement, const std::string& path, const NumberedRows& loads,
                        std::optional<std::int64_t> layer, int num_experts, int num_ranks);

}  // namespace evenkeel::cli
