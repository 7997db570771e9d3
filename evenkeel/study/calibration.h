// This machine, measured.
//
// products   An expert's forward pass over 512 rows, over one row, and over as many as make reading weights
//            and multiplying take about as long; the latter two of many experts, so that no cache has their
//            weights. The same for experts a quarter as wide. On as many threads at a time as ranks that can
//            compute at a time.
// links      Messages of 4 KiB, 256 KiB and 8 MiB from one rank to another, in CPU time of the one that
//            receives. Ranks are threads, so interfaces between nodes get the numbers of links.
// chunk      A layer of the same experts, ranks and top-k whose rows are a few bytes, in 32 chunks and in
//            one, on the critical path. What starting products takes is in it.
#pragma once

#include "evenkeel/cost/spill_costs.h"
#include "evenkeel/io/cost_file.h"
#include "evenkeel/layer/moe_layer.h"

namespace evenkeel {

struct Calibration {
  Machine machine;
  MeasuredOn on;
};

// Takes seconds, and up to about 1 GiB for weights, or four experts if they are larger.
Calibration calibrate(const MoeShape& layer, int ranks);

// The costs of moving work on a layer of this shape, by costs that are given or, where they are null,
// measured now: products and the link, on fewer rows and weights than calibrate() takes. Well below a second
// for experts of usual size.
SpillCosts spill_costs_of(const MoeShape& layer, int ranks, bool backward, const Machine* given);

// What a step of the layer takes on the topology's links, for planners to weigh.
StepLinks links_of(const MoeShape& layer, const Topology& topology, const Machine& machine, bool backward);

}  // namespace evenkeel
