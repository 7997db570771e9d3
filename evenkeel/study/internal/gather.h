// What ranks noted down apart, brought to all of them.
#pragma once

#include <span>
#include <type_traits>
#include <vector>

#include "evenkeel/comm/communicator.h"
#include "evenkeel/device/cpu/stream.h"
#include "evenkeel/layer/step_timeline.h"

namespace evenkeel::internal {

// As many of each rank, in rank order.
template <class Value>
std::vector<Value> gather(Communicator& comm, std::span<const Value> mine) {
  static_assert(std::is_trivially_copyable_v<Value>);
  std::vector<Value> all(mine.size() * static_cast<std::size_t>(comm.size()));
  CpuStream stream;
  comm.all_gather(std::as_bytes(mine), std::as_writable_bytes(std::span(all)), stream, "figures").wait();
  return all;
}

// By rank. Names of buffers last as long as the process.
std::vector<StepRecord> gather_records(Communicator& comm, const StepRecord& mine);

}  // namespace evenkeel::internal
