// Gathers the step records of each rank on all ranks.
#pragma once

#include <vector>

#include "evenkeel/comm/communicator.h"
#include "evenkeel/layer/step_timeline.h"

namespace evenkeel::internal {

// One record for each rank. Names of buffers in the records stay valid until the process ends.
std::vector<StepRecord> gather_records(Communicator& comm, const StepRecord& mine);

}  // namespace evenkeel::internal
