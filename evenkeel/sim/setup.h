// From what a user says of model and machine to what a replay needs.
//
// Layer    rows and experts are those of the model's config, in its type or in the bytes that somebody says.
//          Borrowed weights lie as they came, and products have no workspace of their own.
// Links    the topology's, where somebody described them; else those of a file of costs or a device.
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
  std::optional<double> expert_bytes = {};  // of one expert, where it is quantized
  // Rates: of a file of costs, or half of a device's peaks.
  std::optional<Machine> machine = {};
  std::string device = {};
  bool backward = false;
  std::optional<std::int64_t> budget = {};
  PlannerOptions planner = {};  // kind and links aside
};

// The machine of one of the groups, which must all be alike. Throws InvalidArgument where they are not.
Topology group_topology(const Topology& topology, const GroupShape& shape);

// Notes get what was assumed, a sentence each. Throws InvalidArgument: "model" where it is of other experts
// than `recording`; "device" where it is not known; "budget" without
// a model. BudgetTooSmall: for a layer of so many tokens a rank.
SimSetup sim_setup(const SimRequest& request, const GroupShape& shape, const StepSource& steps,
                   const std::string& recording, std::vector<std::string>& notes);

}  // namespace evenkeel
