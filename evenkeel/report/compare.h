// Reports `evenkeel compare`: what each method would do, as text, JSON, CSV and a timeline.
#pragma once

#include <string>

#include "evenkeel/report/chrome_trace.h"
#include "evenkeel/report/html.h"
#include "evenkeel/sim/compare_recordings.h"

namespace evenkeel {

std::string to_text(const ComparedRecordings& compared);
std::string to_json(const ComparedRecordings& compared);
// A line of column names, then one line per step and method.
std::string to_csv(const ComparedRecordings& compared);
std::string to_html(const ComparedRecordings& compared, const PageOrigin& origin);
// For each method, the timeline of the layer and step that is least even under plain EP. Times are predicted
// seconds.
ChromeTrace timeline_of(const ComparedRecordings& compared);

}  // namespace evenkeel
