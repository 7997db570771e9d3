// The verdict of `evenkeel place` on its own placement: that of `evenkeel evaluate`, on the recordings that
// it was made from and on those that it was not.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cli/routing_input.h"
#include "cli/verdict_report.h"
#include "evenkeel/placement/evaluate/evaluate.h"

namespace evenkeel::cli {

// A recording as a placement is judged on it.
struct JudgedData {
  std::string name;
  RoutingProfile profile;
  std::vector<RoutingProfile> steps = {};
};

// `are_steps`: what was read is the steps of one recording.
std::vector<JudgedData> judged_data(const RoutingInputs& inputs, bool are_steps, const std::string& name);

struct VerdictQuestion {
  const Placement& placement;
  const std::optional<Placement>& from;  // else contiguous homes
  std::string placement_name;
  std::string from_name;
  const Topology& topology;
  const StepModel& model;
  std::optional<double> horizon;
};

VerdictReport verdict_on(std::span<const JudgedData> recordings, const VerdictQuestion& question);

}  // namespace evenkeel::cli
