// Turns a user's description of model and machine into the set-up that a replay needs.
//
// Layer     Rows and experts have the sizes in the model's config. Bytes follow from the config's type, or
//           are given for an expert. Borrowed weights are used as received, and products need no workspace.
// Links     The links of the topology if it describes them; otherwise those of a cost file or a device.
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
  std::optional<double> expert_bytes = {};  // bytes of one expert, if it is quantized
  // Rates from a cost file. If not given, half of the device's peak rates are used.
  std::optional<Machine> machine = {};
  std::string device = {};
  bool backward = false;
  std::optional<std::int64_t> budget = {};
  PlannerOptions planner = {};  // without kind and links, which are set elsewhere
};

// The topology of one group. Throws InvalidArgument if not all groups have the same topology.
Topology group_topology(const Topology& topology, const GroupShape& shape);

// Adds one sentence to `notes` for each assumption. Throws InvalidArgument about "model" if the model's
// experts differ from the recording's, about "device" if the device is unknown, and about "budget" if there
// is a budget but no model. Throws BudgetTooSmall if the budget is too small for a layer with that many
// tokens per rank.
SimSetup sim_setup(const SimRequest& request, const GroupShape& shape, const StepSource& steps,
                   const std::string& recording, std::vector<std::string>& notes);

}  // namespace evenkeel
