// Brings the step records that each rank made to all ranks.
#pragma once

#include <vector>

#include "evenkeel/comm/communicator.h"
#include "evenkeel/layer/step_timeline.h"

namespace evenkeel::internal {

// One record per rank. Names of buffers live as long as the process.
std::vector<StepRecord> gather_records(Communicator& comm, const StepRecord& mine);

}  // namespace evenkeel::internal
