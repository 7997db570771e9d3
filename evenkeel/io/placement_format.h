// Placements in the files of other systems: SGLang, vLLM, vLLM-Ascend, TensorRT-LLM, and our own.
// docs/formats.md#placements-of-other-systems describes each format and names its public source.
//
//   write_placement_as(PlacementFormat::sglang, file, {.layers = {{3, 4, 5}}, .num_hidden_layers = 6}, path);
//   PlacementFile again = read_placement_as(path, {.num_ranks = 32});
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "evenkeel/io/byte_source.h"
#include "evenkeel/io/model_config.h"
#include "evenkeel/io/placement_file.h"
#include "evenkeel/plan/dispatch.h"

namespace evenkeel {

enum class PlacementFormat { evenkeel, sglang, vllm, vllm_ascend, trtllm };

// "evenkeel", "sglang", "vllm", "vllm-ascend", "trtllm", in the order of the enumeration.
std::vector<std::string> placement_format_names();
std::string_view name_of(PlacementFormat format);
// Throws InvalidArgument about `option` for an unknown name, listing the known ones.
PlacementFormat parse_placement_format(std::string_view name, const std::string& option = "format");

// True for SGLang and TensorRT-LLM, whose files number all of the model's layers; the others count MoE layers
// only.
bool counts_model_layers(PlacementFormat format);

// The dispatch rule named `given`; if that is empty, the default rule of the server that loads this format.
// Throws InvalidArgument about `option` if the server does not have the rule.
Dispatch dispatch_for(std::optional<PlacementFormat> format, std::string_view given,
                      const std::string& option = "dispatch");

struct PlacementFormatOptions {
  // For each layer of the placement, its number in the model: ascending, counted from 0, dense layers
  // included. A placement without layer numbers gets these; a placement with other numbers is refused. From
  // SGLang's and TensorRT-LLM's files only these layers are read. Default: the placement's own numbers. If it
  // has none, its layers are taken to be all hidden layers of the model.
  std::optional<std::vector<int>> layers = {};
  // The number of the model's hidden layers, dense ones included. Default: the last of `layers` is the
  // model's last.
  std::optional<int> num_hidden_layers = {};
  // The model's config; it replaces both options above. If `layers` is also given, the model's other MoE
  // layers get a row with their experts in order (io/unplaced_layers.h). TensorRT-LLM's file needs the layers
  // of multi-token prediction; the other servers' files leave them out.
  std::optional<ModelLayers> model = {};
  // TensorRT-LLM: how many layers the server may rearrange in each iteration. Default: the number in the
  // placement's file, or 0.
  std::optional<int> layer_updates_per_iter = {};
  // For reading a file that lacks these numbers; a file that has them must agree. If neither gives the number
  // of experts, it is the largest id plus one.
  std::optional<int> num_ranks = {};
  std::optional<int> num_experts = {};
};

// Parses "3-60" or "0,2,4-6". Throws InvalidArgument about `option`.
std::vector<int> parse_layers(const std::string& option, std::string_view text);

// Returns notes for the user: layers that the file has and the placement does not, or the reverse. Throws
// Unsupported, with layer and reason, if the format cannot express the placement; InvalidArgument if the
// options do not fit it.
std::vector<std::string> write_placement_as(PlacementFormat format, const PlacementFile& file,
                                            const PlacementFormatOptions& options, const std::string& path);

// The shape of a placement with equal sizes, known before the placement is made.
struct PlacementShape {
  int num_layers = 0;
  int physical_experts = 0;  // in each layer, with copies
  int num_ranks = 0;
  LayerNumbers layers = {};  // the layers' numbers in the model, if known
};

// Throws what writing a placement of this shape would throw if no file can be made at `path`, if the server
// does not load a file of that name, if the format cannot express the shape, or if an option does not fit.
// Call it before a long solve.
void require_placement_writable(PlacementFormat format, const PlacementShape& shape,
                                const PlacementFormatOptions& options, const std::string& path);

// Detects the format from the content; nullopt if the file is not a placement.
std::optional<PlacementFormat> detect_placement_format(const ByteSource& source);
// The number of ranks in the file; nullopt if its format does not state it. Throws ParseError.
std::optional<int> num_ranks_in(const ByteSource& source);
// Reads a file of any of the formats; its content tells which. If the file counts the model's layers, only
// options.layers are read. Throws ParseError; InvalidArgument if an option is missing or does not fit the
// file.
PlacementFile read_placement_as(const ByteSource& source, const PlacementFormatOptions& options = {});

}  // namespace evenkeel
