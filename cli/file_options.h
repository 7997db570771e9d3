// The options that say what a file of routing, or of a placement, does not say itself.
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

  // Both read the model's config. Throw InvalidArgument.
  ReadOptions reading() const;
  PlacementFormatOptions placement() const;
  // --model, which may be the folder of the config.
  std::vector<std::string> model_files() const { return {model, model + "/config.json"}; }
};

// --num-experts; --axes with --columns and --as; --moe-layers with --model; --num-hidden-layers.
void add_num_experts(CLI::App& app, FileArguments& arguments);
void add_axes(CLI::App& app, FileArguments& arguments);
void add_numbering(CLI::App& app, FileArguments& arguments);
void add_hidden_layers(CLI::App& app, FileArguments& arguments);
// Throws InvalidArgument where two options say how many layers the model has.
void require_one_numbering(const CLI::App& app);

// Notes, on stderr, of content that was read otherwise than it stands in a file.
void say_notes(const std::string& file, const std::vector<std::string>& notes);
void say_notes(std::span<const Recording> recordings);
// How numbers that nobody named were read, by file.
void add_axes_of(std::span<const Recording> recordings, std::map<std::string, std::string>& axes);

// Throws InvalidArgument where writing `output`, which `argument` names, would replace a file that is read: a
// recording, one in the folder of a recording, or one of the others.
void require_not_read(const std::string& output, const std::string& argument,
                      const std::vector<std::string>& recordings, const std::vector<std::string>& others);

// Any format that is read (docs/formats.md), by content; some do not say how many ranks there are.
Placement read_placement_file(const std::string& path, std::optional<int> num_ranks = {});
// --dispatch, which is empty where it is not given.
void add_dispatch(CLI::App& app, std::string& dispatch);
// The homes for the layer of the loads that is asked for, or their only one (Placement::row_for()). Throws
// InvalidArgument if there is none such, or if the placement is for other experts or ranks.
LayerPlacement layer_of(const Placement& placement, const std::string& path, const NumberedRows& loads,
                        std::optional<std::int64_t> layer, int num_experts, int num_ranks);

}  // namespace evenkeel::cli
