// A comparison as JSON, alone or as one of several.
#pragma once

#include "evenkeel/report/internal/json.h"
#include "evenkeel/sim/compare_recordings.h"

namespace evenkeel::internal {

Json json_of(const ComparedRecordings& compared);

}  // namespace evenkeel::internal
