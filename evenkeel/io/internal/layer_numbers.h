// Which of a model's layers the layers of a placement are, for formats that count the dense ones too.
#pragma once

#include <string>
#include <vector>

#include "evenkeel/io/internal/physical_rows.h"
#include "evenkeel/io/placement_format.h"

namespace evenkeel::internal {

// Throws InvalidArgument if options.layers are not ascending numbers a model may have.
void require_ascending(const std::vector<int>& layers);
// options.layers, checked against the placement's number of layers; 0, 1, ... where nobody says.
std::vector<int> layer_numbers(int num_layers, const PlacementFormatOptions& options);
// options.num_hidden_layers, checked to hold all of `numbers`.
int num_hidden_layers(const std::vector<int>& numbers, const PlacementFormatOptions& options);
// options.layers, checked against the rows there are in a file; all where nobody says.
std::vector<int> chosen_layers(int num_rows, const PlacementFormatOptions& options, const std::string& file);
// Throws InvalidArgument if the number of ranks is not given.
RowsShape rows_shape(const std::string& file, const PlacementFormatOptions& options);

}  // namespace evenkeel::internal
