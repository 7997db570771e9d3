// The time of a step and of a move, from what the user states about the model and the machine. It is where
// the StepModel of a verdict comes from.
//
// Rates     rates stated outright go before the topology's links, and those before a file of costs or a
//           device. Of a device half of its peaks is taken, which is an assumption (topology/devices.h).
// Notes     assumptions, and the parts of a file of costs that the model does not use, a sentence each.
#pragma once

#include <optional>
#include <string>

#include "evenkeel/cost/machine.h"
#include "evenkeel/cost/spill_costs.h"
#include "evenkeel/model/model_description.h"
#include "evenkeel/placement/evaluate/evaluate.h"

namespace evenkeel {

struct MachineRates {
  std::optional<double> tflops = {};
  std::optional<double> link_gigabytes_per_s = {};
  // Somebody described the links of the topology.
  bool topology_has_links = false;
  // From a file of costs.
  struct Cost {
    std::string file;
    Machine machine;
  };
  std::optional<Cost> cost = {};
  std::string device = {};  // a preset's name, or nothing
};

struct ExpertSizes {
  ExpertWork work;                   // of one expert; its bytes are below
  std::optional<double> bytes = {};  // of one expert
  int top_k = 1;
};
// Of a model. `bytes` of one expert where they are known, else by the type of the model's weights. Throws
// InvalidArgument: "model" where it has another number of experts than `recording`, and for whoever says the
// bytes ("expert_bytes" or "model") where they are none, or above 10^15.
ExpertSizes expert_sizes(const ModelDescription& model, std::optional<double> bytes,
                         const std::string& recording, int num_experts);

// What a planner that knows the links is told of a step of this model. Throws as above; where neither `bytes`
// nor the model says the size of its numbers; and as require_links(), which calls the topology
// `topology_option`.
StepLinks step_links(const Topology& topology, const Machine& machine, const ModelDescription& model,
                     std::optional<double> bytes, const std::string& recording, int num_experts,
                     bool backward, const char* topology_option = "topology");

// Without `sizes` only the link is known, without `tokens_per_step` nothing of a step. Throws InvalidArgument
// for a device that is not known; the error calls it `device_option`.
StepModel step_model(const MachineRates& rates, const Topology& topology,
                     const std::optional<ExpertSizes>& sizes, std::optional<double> tokens_per_step,
                     const std::string& device_option = "device");

}  // namespace evenkeel
