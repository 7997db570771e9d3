// A point that the streams of all ranks pass together: what any of them was given before it is done
// before any begins what it is given after. Neither the host nor a device waits for more than that.
//
// Method  Each thread records an event in its stream, shows it to the others through the communicator,
//         and has its stream wait for theirs. The host threads meet; the host does not wait for a
//         device.
// Order   Collective. Under stream capture the events become edges of the graph, and replays need no
//         thread.
// End     A rank that is ahead waits here, on its host, until the others are past their scopes: from then on
//         nobody hands over anything that reads its memory or waits for its events.
#pragma once

#include <memory>
#include <vector>

#include "evenkeel/comm/communicator.h"
#include "evenkeel/device/cpu/stream.h"
#include "evenkeel/device/device_stream.h"
#include "evenkeel/exchange/cuda/peer_access.h"

namespace evenkeel::cuda {

class StreamBarrier {
 public:
  // Collective. The communicator's ranks are threads of one process. It must outlive this.
  explicit StreamBarrier(Communicator& comm);
  // Where an exception passes, others within a scope may wait for this rank: it aborts the communicator
  // first.
  ~StreamBarrier();
  StreamBarrier(const StreamBarrier&) = delete;
  StreamBarrier& operator=(const StreamBarrier&) = delete;

  void sync(DeviceStream& stream);
  // The others' streams come after what `root` was given: the beginning of a capture, which only root begins.
  void follow(RankId root, DeviceStream& stream);

  // To be held while work is handed over that reads other ranks' memory.
  PeerAccessScope scope() { return {*access_, comm_.rank()}; }
  // As this object's end does; may be called before, by ranks that begin no scope any more.
  void await_others() noexcept;

  // The host threads alone.
  void gather() { show(EventLease()); }

 private:
  // Everyone's word to everyone.
  template <class T>
  void tell(const T& mine, std::vector<T>& all);
  // Shows the events of those that have one, and keeps what it took two calls ago for no longer.
  void show(EventLease event);
  void share_access();

  Communicator& comm_;
  CpuStream words_;
  std::vector<const DeviceEvent*> shown_;
  // Others may have their streams wait for the last event shown until they come to the next call.
  EventLease last_;
  std::shared_ptr<PeerAccessTracker> access_;
  int exceptions_;
};

}  // namespace evenkeel::cuda
