// Placements in the files of other systems: SGLang, vLLM, vLLM-Ascend, TensorRT-LLM, and our own. What each
// holds, and the public source it was read from: docs/formats.md#placements-of-other-systems.
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
// Throws InvalidArgument, which calls it `option` and names those there are.
PlacementFormat parse_placement_format(std::string_view name, const std::string& option = "format");

// SGLang's and TensorRT-LLM's number the model's layers, dense ones too; the others MoE layers alone.
bool counts_model_layers(PlacementFormat format);

// The rule that `said` names; where it is empty, that of a server which loads such a file, unless it is
// started otherwise. Throws InvalidArgument, which calls it `option`, where no such server has the rule.
Dispatch dispatch_for(std::optional<PlacementFormat> format, std::string_view said,
                      const std::string& option = "dispatch");

struct PlacementFormatOptions {
  // Which of the model's layers, counted from 0 with the dense ones, each layer of the placement is;
  // ascending. Left out, those that the placement knows, or all of a model of as many hidden layers. What
  // does not know them is numbered by them, SGLang's and TensorRT-LLM's files are read at them alone, and
  // anything else is refused.
  std::optional<std::vector<int>> layers = {};
  // Of the model, dense ones too. Left out, the last of `layers` is the model's last.
  std::optional<int> num_hidden_layers = {};
  // The model's config: instead of both, or beside `layers`, where those are not all that have experts. The
  // others get a row as well, with experts in order (io/unplaced_layers.h). TensorRT-LLM wants layers of
  // multi-token prediction in its file; the other servers' files leave them out.
  std::optional<ModelLayers> model = {};
  // TensorRT-LLM: how many layers it may rearrange itself in each iteration. Left out, what the placement's
  // file says, or 0.
  std::optional<int> layer_updates_per_iter = {};
  // For reading formats that do not say them; what a file says must agree. The number of experts is else the
  // largest id plus one.
  std::optional<int> num_ranks = {};
  std::optional<int> num_experts = {};
};

// "3-60" or "0,2,4-6". Throws InvalidArgument, which calls it `option`.
std::vector<int> parse_layers(const std::string& option, std::string_view text);

// Returns notes for the user: layers of the model that the file has and the placement has not, or the other
// way round. Throws Unsupported where the format cannot express the placement, saying which layer and why;
// InvalidArgument if the options do not fit it.
std::vector<std::string> write_placement_as(PlacementFormat format, const PlacementFile& file,
                                            const PlacementFormatOptions& options, const std::string& path);

// The shape of a placement of equal sizes, as it is known before the placement is made.
struct PlacementShape {
  int num_layers = 0;
  int physical_experts = 0;  // of a layer, copies counted
  int num_ranks = 0;
  LayerNumbers layers = {};  // which of the model's layers these are, where it is known
};

// Throws what writing any such placement would: no file can be made there, the system itself would not take
// one of that name, the format cannot express it, or an option does not fit. For whoever would learn it only
// after a long solve.
void require_placement_writable(PlacementFormat format, const PlacementShape& shape,
                                const PlacementFormatOptions& options, const std::string& path);

// The format whose content the file has; none if it is not a placement.
std::optional<PlacementFormat> detect_placement_format(const ByteSource& source);
// How many ranks the file says there are; nothing where its format does not say it. Throws ParseError.
std::optional<int> num_ranks_in(const ByteSource& source);
// Any of the formats, by content. Of `options.layers` only those layers are taken, where the file counts the
// model's layers. Throws ParseError; InvalidArgument if an option is missing or does not fit the file.
PlacementFile read_placement_as(const ByteSource& source, const PlacementFormatOptions& options = {});

}  // namespace evenkeel
