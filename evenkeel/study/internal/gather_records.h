// The records of steps that ranks made apart, brought to all of them.
#pragma once

#include <vector>

#include "evenkeel/comm/communicator.h"
#include "evenkeel/layer/step_timeline.h"

namespace evenkeel::internal {

// By rank. Names of buffers last as long as the process.
std::vector<StepRecord> gather_records(Communicator& comm, const StepRecord& mine);

}  // namespace evenkeel::internal
