// The input of `evenkeel plan`: the loads of one step, by layer. Any file that holds routing
// (read_recording.h) is accepted; all of its tokens are taken as one step. A single layer may also be JSON:
// {"loads": [...]} by expert, or {"counts": [[...]]} by source rank and expert.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "evenkeel/io/read_recording.h"
#include "evenkeel/plan/counts.h"

namespace evenkeel {

struct LoadsOptions {
  // Needed unless the file gives the number, as num_ranks or by counts for each rank. If the option and the
  // file both give it, they must agree.
  std::optional<int> num_ranks = {};
  std::string ranks_argument = "ranks";  // the name of num_ranks in errors
  // Layer numbers in the model if the file has them, else rows; empty: all layers.
  std::vector<int> layers = {};
  std::string layers_argument = "layer";
  ReadOptions reading = {};
};

struct LayerLoads {
  int layer = 0;  // its number in the model if the file has it, else its row
  Counts counts;
};

struct StepLoads {
  std::vector<LayerLoads> of;           // the layers asked for, one or more
  LayerNumbers layers;                  // of all layers in the file, if it has them
  int num_layers = 1;                   // in the file
  std::vector<std::string> notes = {};  // what was read differently from the file
  std::string axes = {};                // for arrays without names: how their dimensions were read
};

// Throws ParseError if the file has none of these forms, a number is negative or not whole, or the total is
// above 2^63-1; InvalidArgument if an option is missing or does not fit the file.
StepLoads read_step_loads(const ByteSource& source, const LoadsOptions& options);

}  // namespace evenkeel
