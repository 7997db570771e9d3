// Measures the costs of work on this machine.
//
// products  An expert's forward pass over 512 rows, over one row, and over a number of rows with which
//           reading weights and multiplying take about equally long. The last two use many experts, so that
//           no cache holds their weights. All three are also measured for experts a quarter as wide. They run
//           on as many threads as ranks can compute at the same time.
// links     Messages of 4 KiB, 256 KiB and 8 MiB from one rank to another, in CPU time of the receiver. Ranks
//           are threads here, so network interfaces between nodes get the same numbers as links.
// chunk     The time on the critical path of a layer with the same number of experts, ranks and top-k but
//           rows of a few bytes, in 32 chunks and in one. The difference includes the cost of starting
//           products.
#pragma once

#include "evenkeel/cost/spill_costs.h"
#include "evenkeel/io/cost_file.h"
#include "evenkeel/layer/moe_layer.h"

namespace evenkeel {

struct Calibration {
  Machine machine;
  MeasuredOn on;
};

// Takes seconds. Uses up to about 1 GiB for weights, or more if four experts are larger than that.
Calibration calibrate(const MoeShape& layer, int ranks);

// The costs of moving work on a layer of this shape. Uses the machine `given`. If that is null, it measures
// products and the link, with fewer rows and weights than calibrate(). That takes well below a second for
// experts of usual size.
SpillCosts spill_costs_of(const MoeShape& layer, int ranks, bool backward, const Machine* given);

// The links and sizes with which planners estimate the time of a step.
StepLinks links_of(const MoeShape& layer, const Topology& topology, const Machine& machine, bool backward);

}  // namespace evenkeel
