// The input of `evenkeel plan`: the loads of one step, by layer. It is any file that holds routing
// (read_recording.h), all of whose tokens are one step. Or it is JSON {"loads": [...]} by expert, or JSON
// {"counts": [[...]]} by source rank and expert, of one layer.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "evenkeel/io/read_recording.h"
#include "evenkeel/plan/counts.h"

namespace evenkeel {

struct LoadsOptions {
  // Needed unless the file says it: in num_ranks, or by counts of each rank. It must then be the same.
  std::optional<int> num_ranks = {};
  std::string ranks_argument = "ranks";  // what errors call it
  // By number in the model where the file says it, else by row; empty: all layers.
  std::vector<int> layers = {};
  std::string layers_argument = "layer";
  ReadOptions reading = {};
};

struct LayerLoads {
  int layer = 0;  // its number in the model where the file says it, else its row
  Counts counts;
};

struct StepLoads {
  std::vector<LayerLoads> of;           // the layers asked for, one or more
  LayerNumbers layers;                  // of the file, where it says them
  int num_layers = 1;                   // of the file
  std::vector<std::string> notes = {};  // what was read otherwise than it stands there
  std::string axes = {};                // of numbers that nobody named: how they were read
};

// Throws ParseError if the file is none of the above, a number is negative or not whole, or the total is
// above 2^63-1; InvalidArgument if an option is missing or does not fit the file.
StepLoads read_step_loads(const ByteSource& source, const LoadsOptions& options);

}  // namespace evenkeel
