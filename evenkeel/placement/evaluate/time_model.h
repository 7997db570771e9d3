// The time of a step and of a move, from what the user states about the model and the machine. Makes the
// StepModel of a verdict.
//
// Rates     stated rates come first, then the topology's links, then a cost file or a device. A device counts
//           with half of its peaks, which is an assumption (topology/devices.h).
// Notes     name the assumptions, and the parts of a cost file that the model does not use, one sentence
//           each.
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
  // True if the links of the topology were given, false if they are defaults.
  bool topology_has_links = false;
  // From a cost file.
  struct Cost {
    std::string file;
    Machine machine;
  };
  std::optional<Cost> cost = {};
  std::string device = {};  // a preset's name, or empty
};

struct ExpertSizes {
  ExpertWork work;                   // work of one expert, without its bytes
  std::optional<double> bytes = {};  // of one expert
  int top_k = 1;
};
// Sizes of a model's experts. One expert has `bytes` bytes if given, else as computed from the type of the
// model's weights. Throws InvalidArgument: for "model" if it has another number of experts than `recording`;
// for "expert_bytes" or "model", whichever gives the bytes, if they are below 1 or above 10^15.
ExpertSizes expert_sizes(const ModelDescription& model, std::optional<double> bytes,
                         const std::string& recording, int num_experts);

// What a planner that takes links into account needs to know about a step of this model. Throws as above;
// also if neither `bytes` nor the model gives the size of the model's numbers; and as require_links(), whose
// errors call the topology `topology_option`.
StepLinks step_links(const Topology& topology, const Machine& machine, const ModelDescription& model,
                     std::optional<double> bytes, const std::string& recording, int num_experts,
                     bool backward, const char* topology_option = "topology");

// Without `sizes` only the link is known; without `tokens_per_step` step times are unknown. Throws
// InvalidArgument for an unknown device; the error names `device_option`.
StepModel step_model(const MachineRates& rates, const Topology& topology,
                     const std::optional<ExpertSizes>& sizes, std::optional<double> tokens_per_step,
                     const std::string& device_option = "device");

}  // namespace evenkeel
