// The result of `evenkeel compare`: what each method would do, for people, for programs, and step by step.
#pragma once

#include <string>

#include "evenkeel/report/chrome_trace.h"
#include "evenkeel/report/html.h"
#include "evenkeel/sim/compare_recordings.h"

namespace evenkeel {

std::string to_text(const ComparedRecordings& compared);
std::string to_json(const ComparedRecordings& compared);
// A line a step and method, behind a line of names.
std::string to_csv(const ComparedRecordings& compared);
std::string to_html(const ComparedRecordings& compared, const PageOrigin& origin);
// Of each method, the layer's step that is least even under plain EP, in predicted seconds.
ChromeTrace timeline_of(const ComparedRecordings& compared);

}  // namespace evenkeel
