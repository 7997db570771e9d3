// Routing for `evenkeel place`: a profile, counts, another system's recording, or a trace that is profiled on
// the fly.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "evenkeel/io/routing_file.h"
#include "evenkeel/placement/problem.h"

namespace evenkeel::cli {

struct RoutingInput {
  RoutingProfile profile;
  SourceCounts sources = {};               // of a trace, where tokens' ranks were asked for
  std::vector<RoutingProfile> steps = {};  // with routing.keep_steps, where the file holds them
  std::vector<std::string> notes = {};
};

struct InputNeeds {
  TrafficModel traffic = TrafficModel::layer_to_layer;
  int num_ranks = 1;
  RoutingOptions routing = {};
};

// Recognised by content. Throws ParseError; InvalidArgument for another num_experts than counts have.
RoutingInput read_input(const std::string& path, const InputNeeds& needs);

struct RoutingInputs {
  std::vector<std::string> names;  // their files, or steps of one
  std::vector<RoutingProfile> profiles;
  SourceCounts sources = {};  // of all together, where all are traces
  // With routing.keep_steps, the steps of each, if it has any.
  std::vector<std::vector<RoutingProfile>> steps = {};
};

// Of several files, whose notes are said. Throws InvalidArgument, naming two files, where they are of other
// layers or experts.
RoutingInputs read_inputs(const std::vector<std::string>& paths, const InputNeeds& needs);
// Of files that need not have the same layers, without sources. The layers that `needs` names are for files
// that do not say their own.
RoutingInputs read_judges(const std::vector<std::string>& paths, const InputNeeds& needs);

// Every step of one file as a recording; of a trace, windows of so many tokens. Throws InvalidArgument where
// it has no steps.
RoutingInputs read_step_inputs(const std::string& path, const InputNeeds& needs,
                               std::optional<std::int64_t> step_tokens);

}  // namespace evenkeel::cli
