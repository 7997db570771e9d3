// The costs of the parts of a step on this machine, measured: the numbers of a CostModel.
//
// flops, weights,  An expert's forward pass over 512 rows, over one row, and over as many as make reading the
// overlap          weights and multiplying take about as long; the latter two of many experts, so that no
//                  cache has their weights. On as many threads at a time as ranks that can compute at a time.
// link             An expert's weights from one rank to another, in CPU time of the one that receives.
// chunk            A layer of the same experts, ranks and top-k whose rows are a few bytes, in 32 chunks and
//                  in one, on the critical path.
#pragma once

#include "evenkeel/cost/spill_costs.h"
#include "evenkeel/io/cost_file.h"
#include "evenkeel/layer/moe_layer.h"

namespace evenkeel {

struct Calibration {
  CostModel cost;
  MeasuredOn on;
};

// Takes seconds, and up to about 1 GiB for weights, or four experts if they are larger.
Calibration calibrate(const MoeShape& layer, int ranks);

// The costs of moving work on a layer of this shape, by costs that are given or, where they are null,
// measured now: products and the link, on fewer rows and weights than calibrate() takes. Well below a second
// for experts of usual size.
SpillCosts spill_costs_of(const MoeShape& layer, int ranks, bool backward, const CostModel* given);

}  // namespace evenkeel
