// A barrier for the streams of all ranks. No stream begins work that was submitted after the barrier until
// all streams have finished the work that was submitted before it.
//
// Method  Each thread records an event in its stream, shares it through the communicator, and makes its
//         stream wait for the others' events. Host threads wait for each other, not for a device.
// Order   Collective. Under stream capture the events become edges of the graph; replays need no host
//         thread.
// End     The destructor blocks the host until no other rank is inside a PeerAccessScope. After that no rank
//         submits work that reads this rank's memory or waits for its events.
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
  // Collective. The communicator's ranks must be threads of one process. It must outlive this object.
  explicit StreamBarrier(Communicator& comm);
  // Calls await_others(). During stack unwinding it first aborts the communicator, since ranks inside a scope
  // may be waiting for this rank.
  ~StreamBarrier();
  StreamBarrier(const StreamBarrier&) = delete;
  StreamBarrier& operator=(const StreamBarrier&) = delete;

  void sync(DeviceStream& stream);
  // The other ranks' streams wait for the work submitted to root's stream. Used to begin a stream capture,
  // since only root begins one.
  void follow(RankId root, DeviceStream& stream);

  // Hold this scope while submitting work that reads other ranks' memory.
  PeerAccessScope scope() { return {*access_, comm_.rank()}; }
  // Blocks until no other rank is inside a scope. A rank that opens no more scopes may call it early.
  void await_others() noexcept;

  // A barrier of the host threads only.
  void gather() { publish_event(EventLease()); }

 private:
  // All-gathers one value per rank.
  template <class T>
  void all_gather(const T& mine, std::vector<T>& all);
  // Shares this rank's event (if it has one) with all ranks, and releases the event of the previous call.
  void publish_event(EventLease event);
  void share_access();

  Communicator& comm_;
  CpuStream host_stream_;
  std::vector<const DeviceEvent*> events_;
  // Kept until the next call: until then other ranks may still make their streams wait for this event.
  EventLease last_event_;
  std::shared_ptr<PeerAccessTracker> access_;
  int exceptions_;
};

}  // namespace evenkeel::cuda
