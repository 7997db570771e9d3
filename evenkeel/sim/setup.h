// Turns what a user says of model and machine into what a replay needs.
//
// Layer     Rows and experts have the sizes of the model's config, in its type or in the given bytes.
//           Borrowed weights are used as received, and products have no workspace of their own.
// Links     Those of the topology, if described; otherwise those of a cost file or a device.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "evenkeel/model/model_description.h"
#include "evenkeel/sim/layer_replay.h"

namespace evenkeel {

struct SimRequest {
  Topology topology = Topology::uniform(1, 1);
  bool topology_has_links = false;
  std::optional<ModelDescription> model = {};
  std::optional<double> expert_bytes = {};  // of one expert, if it is quantized
  // Rates from a cost file; otherwise half of the device's peaks.
  std::optional<Machine> machine = {};
  std::string device = {};
  bool backward = false;
  std::optional<std::int64_t> budget = {};
  PlannerOptions planner = {};  // kind and links are set elsewhere
};

// The machine of one group. Throws InvalidArgument if the groups are not all alike.
Topology group_topology(const Topology& topology, const GroupShape& shape);

// `notes` gets one sentence per assumption. Throws InvalidArgument: "model" if its experts differ from the
// recording's; "device" if it is not known; "budget" without a model. Throws BudgetTooSmall if the budget is
// too small for a layer with that many tokens per rank.
SimSetup sim_setup(const SimRequest& request, const GroupShape& shape, const StepSource& steps,
                   const std::string& recording, std::vector<std::string>& notes);

}  // namespace evenkeel
