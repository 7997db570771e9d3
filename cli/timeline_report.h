// The buffers that a rank's arena held during a step, for people and for programs.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "cli/experiment.h"

namespace evenkeel::cli {

// rank, in_use, phases and buffers: docs/command-line.md.
nlohmann::ordered_json json_of(const RankTimeline& timeline);

// Bytes in use over what happens in the step, the phases below, and what the peak is made of; at most 100
// columns. The budget is drawn where it is within twice the peak.
std::string timeline_picture(const RankTimeline& timeline, const std::string& planner, const Budget& budget);

}  // namespace evenkeel::cli
