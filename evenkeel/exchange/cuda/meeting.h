// A point that the streams of all ranks pass together: what any of them was given before it is done
// before any begins what it is given after. Neither the host nor a device waits for more than that.
//
// Method  Each thread records an event in its stream, shows it to the others through the communicator,
//         and has its stream wait for theirs. The host threads meet; the host does not wait for a
//         device.
// Order   Collective. Under stream capture the events become edges of the graph, and replays need no
//         thread.
#pragma once

#include <vector>

#include "evenkeel/comm/communicator.h"
#include "evenkeel/device/cpu/stream.h"
#include "evenkeel/device/device_stream.h"

namespace evenkeel::cuda {

class Meeting {
 public:
  // The communicator's ranks are threads of one process. It must outlive this.
  explicit Meeting(Communicator& comm);

  void meet(DeviceStream& stream);
  // The others' streams come after what `root` was given: the beginning of a capture, which only root begins.
  void follow(RankId root, DeviceStream& stream);

  // The host threads alone.
  void gather() { show(EventLease()); }

 private:
  // Shows the events of those that have one, and keeps what it took two calls ago for no longer.
  void show(EventLease event);

  Communicator& comm_;
  CpuStream words_;
  std::vector<const DeviceEvent*> shown_;
  // Others may have their streams wait for the last event shown until they come to the next call.
  EventLease last_;
};

}  // namespace evenkeel::cuda
