#include "evenkeel/exchange/cuda/stream_barrier.h"

#include <exception>
#include <span>
#include <utility>

namespace evenkeel::cuda {

StreamBarrier::StreamBarrier(Communicator& comm)
    : comm_(comm), events_(static_cast<std::size_t>(comm.size())), exceptions_(std::uncaught_exceptions()) {
  share_access();
}

StreamBarrier::~StreamBarrier() {
  await_others();
}

// Each rank moves its own reference out of rank 0's vector. If a rank fails before all have done so, the
// vector leaks on purpose: a slower rank may still read it.
void StreamBarrier::share_access() {
  using References = std::vector<std::shared_ptr<PeerAccessTracker>>;
  References* mine = nullptr;
  if (comm_.rank() == RankId(0))
    mine = new References(static_cast<std::size_t>(comm_.size()),
                          std::make_shared<PeerAccessTracker>(comm_.size()));
  std::vector<References*> all(static_cast<std::size_t>(comm_.size()));
  all_gather(mine, all);
  access_ = std::move((*all.front())[comm_.rank().offset()]);
  gather();
  delete mine;
}

void StreamBarrier::await_others() noexcept {
  if (std::uncaught_exceptions() > exceptions_ && !access_->is_alone(comm_.rank()))
    comm_.abort("an exception ended its part of a layer");
  access_->await_others(comm_.rank());
}

template <class T>
void StreamBarrier::all_gather(const T& mine, std::vector<T>& all) {
  comm_
      .all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)), host_stream_,
                  "barrier")
      .wait();
}

void StreamBarrier::publish_event(EventLease event) {
  const DeviceEvent* const mine = event.get();
  all_gather(mine, events_);
  last_event_ = std::move(event);
}

void StreamBarrier::sync(DeviceStream& stream) {
  if (comm_.size() == 1) return;
  const PeerAccessScope within = scope();
  stream.flush();
  publish_event(stream.record());
  for (RankId rank : indices<RankId>(comm_.size()))
    if (rank != comm_.rank()) stream.enqueue_wait(*events_[rank.offset()]);
}

void StreamBarrier::follow(RankId root, DeviceStream& stream) {
  if (comm_.size() == 1) return;
  const PeerAccessScope within = scope();
  stream.flush();
  const bool leads = comm_.rank() == root;
  publish_event(leads ? stream.record() : EventLease());
  if (!leads) stream.enqueue_wait(*events_[root.offset()]);
}

}  // namespace evenkeel::cuda
