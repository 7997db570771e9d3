// Layer numbers of a file's rows: as our own files store them, and for formats that also count dense layers.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "evenkeel/io/array_file.h"
#include "evenkeel/io/internal/array_writer.h"
#include "evenkeel/io/internal/json.h"
#include "evenkeel/io/placement_format.h"
#include "evenkeel/routing/layer_numbers.h"

namespace evenkeel::internal {

// The array or key "layers" of our formats; unknown numbers if there is none. Throws ParseError unless it has
// `num_rows` ascending numbers.
LayerNumbers layers_of(const std::vector<std::int64_t>& stated, int num_rows, const std::string& file);
LayerNumbers layers_in(const ArrayFile& file, int num_rows);
LayerNumbers layers_in(const Json& json, int num_rows, const std::string& file);
ArrayToWrite layers_to_write(const LayerNumbers& layers);

// Recordings may lack the layers that a table routes; a placement has rows for all MoE layers.
enum class RowsOf { recording, placement };
// The layer numbers that the options give to rows, from `layers`, from `model`, or from both; unknown if
// neither is given. Throws InvalidArgument about --moe-layers if there are not as many numbers as rows, or
// the rows already have other numbers. Throws InvalidArgument about --model if a row is a layer without
// experts, the number of rows does not fit the model, or the number of experts differs from `num_experts` (0:
// not known).
LayerNumbers layers_from_options(const std::optional<std::vector<int>>& layers,
                                 const std::optional<ModelLayers>& model, const NumberedRows& rows,
                                 int num_experts, RowsOf of = RowsOf::recording);
// For a format that counts the model's layers: the numbers that the placement knows, else all layers if
// options.num_hidden_layers equals its number of rows. Throws InvalidArgument if neither applies; `format` is
// the format's name.
std::vector<int> layer_numbers_of(const NumberedRows& placement, const PlacementFormatOptions& options,
                                  std::string_view format);
// The number of hidden layers by the options, checked to be above all `numbers`.
int num_hidden_layers(const std::vector<int>& numbers, const PlacementFormatOptions& options);

}  // namespace evenkeel::internal
