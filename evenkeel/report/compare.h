// The result of `evenkeel compare`: what each method would do, for people, for programs, and step by step.
#pragma once

#include <string>

#include "evenkeel/sim/compare_recordings.h"

namespace evenkeel {

std::string to_text(const ComparedRecordings& compared);
std::string to_json(const ComparedRecordings& compared);
// A line a step and method, behind a line of names.
std::string to_csv(const ComparedRecordings& compared);

}  // namespace evenkeel
