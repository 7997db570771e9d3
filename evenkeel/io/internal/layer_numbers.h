// Which of a model's layers the rows of a file are: as our own files say it, and as formats need it that
// count the dense layers too.
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

// The array or key "layers" of our formats; none where there is none. Throws ParseError unless it has
// `num_rows` ascending numbers.
LayerNumbers layers_of(const std::vector<std::int64_t>& stated, int num_rows, const std::string& file);
LayerNumbers layers_in(const ArrayFile& file, int num_rows);
LayerNumbers layers_in(const Json& json, int num_rows, const std::string& file);
ArrayToWrite layers_to_write(const LayerNumbers& layers);

// Recordings may lack the layers that a table routes; rows of a placement are of all MoE layers.
enum class RowsOf { recording, placement };
// The layer numbers that options give to rows, by numbers, by a model, or by numbers of a model's layers;
// none where they give none. Throws InvalidArgument about --moe-layers unless they are as many as the rows,
// and those that they know; about --model where rows know a layer without experts, there are not as many, or
// they have other experts (`num_experts`, 0 where it is not known).
LayerNumbers said_layers(const std::optional<std::vector<int>>& layers,
                         const std::optional<ModelLayers>& model, const NumberedRows& rows, int num_experts,
                         RowsOf of = RowsOf::recording);
// For a format that counts the model's layers: options.layers, else what the placement knows, else all of a
// model of as many hidden layers. Throws InvalidArgument where nobody said them, or two disagree; `format` is
// its name.
std::vector<int> layer_numbers_of(const NumberedRows& placement, const PlacementFormatOptions& options,
                                  std::string_view format);
// options.num_hidden_layers, checked to hold all of `numbers`.
int num_hidden_layers(const std::vector<int>& numbers, const PlacementFormatOptions& options);

}  // namespace evenkeel::internal
