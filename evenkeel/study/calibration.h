// Measures this machine.
//
// products  An expert's forward pass over 512 rows, over one row, and over a row count at which reading
//           weights and multiplying take about equally long. The latter two use many experts, so that no
//           cache has their weights. The same for experts a quarter as wide. Runs on as many threads as ranks
//           can compute at a time.
// links     Messages of 4 KiB, 256 KiB and 8 MiB from one rank to another, in CPU time of the receiver. Ranks
//           are threads, so interfaces between nodes get the same numbers as links.
// chunk     A layer with the same experts, ranks and top-k, whose rows are a few bytes, in 32 chunks and in
//           one, on the critical path. This includes the cost of starting products.
#pragma once

#include "evenkeel/cost/spill_costs.h"
#include "evenkeel/io/cost_file.h"
#include "evenkeel/layer/moe_layer.h"

namespace evenkeel {

struct Calibration {
  Machine machine;
  MeasuredOn on;
};

// Takes seconds, and up to about 1 GiB for weights, or more if four experts are larger than that.
Calibration calibrate(const MoeShape& layer, int ranks);

// The costs of moving work on a layer of this shape. Uses the given machine; if it is null, measures products
// and the link now, on fewer rows and weights than calibrate(). That takes well below a second for experts of
// usual size.
SpillCosts spill_costs_of(const MoeShape& layer, int ranks, bool backward, const Machine* given);

// Links and sizes from which planners estimate the time of a step.
StepLinks links_of(const MoeShape& layer, const Topology& topology, const Machine& machine, bool backward);

}  // namespace evenkeel
