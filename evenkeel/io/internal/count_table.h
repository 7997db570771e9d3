// Counts of experts in a text table (docs/formats.md#counts): long, a line for each expert of a layer, or
// wide, a line for each layer. The names of the columns decide; what they leave open is refused, not guessed.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "evenkeel/io/array_file.h"
#include "evenkeel/io/routing_file.h"

namespace evenkeel::internal {

struct CountTable {
  IntArray counts;               // [layers, E], or [steps, layers, E]; layers ascend where they have numbers
  std::vector<int> layers = {};  // the model's numbers of the rows; empty where the table does not say them
  std::vector<std::string> notes;  // what was read otherwise than it stands there, and why
  bool named = true;               // a line of names says what the columns are
};

// A long table leaves out what nobody chose, so that `num_experts` may say more than its largest id. With
// `keep_steps`, a table with a column of steps is not added up over them. Throws
// ParseError: names or cells that are no counts, a layer or expert that is there twice with no step, rank or
// the like to tell them apart.
CountTable read_count_table(std::string_view text, const std::string& file, std::optional<int> num_experts,
                            bool keep_steps = false);
// Layers that have numbers and no assignment are dense, and left out.
RoutingFile routing_of_table(CountTable table, const std::string& file);

}  // namespace evenkeel::internal
