// The costs of the parts of a step on this machine, measured: the numbers of a CostModel.
//
// flops, weights,  An expert's forward pass over 512 rows, over one row, and over as many as make reading the
// overlap          weights and multiplying take about as long; the latter two of many experts, so that no
//                  cache has their weights. On as many threads at a time as ranks that can compute at a time.
// link             An expert's weights from one rank to another, in CPU time of the one that receives.
// chunk            A layer of the same experts, ranks and top-k whose rows are a few bytes, in 32 chunks and
//                  in one, on the critical path.
#pragma once

#include "cli/layer_options.h"
#include "evenkeel/io/cost_file.h"

namespace evenkeel::cli {

struct Calibration {
  CostModel cost;
  MeasuredOn on;
};

// The costs that decide whether work moves: products and the link, on fewer rows and weights. Well below a
// second for experts of usual size; the rest of the model is its default.
CostModel measure_costs(const MoeShape& layer, int ranks);

// Takes seconds, and up to about 1 GiB for weights, or four experts if they are larger.
Calibration calibrate(const LayerOptions& layer, int ranks);

}  // namespace evenkeel::cli
