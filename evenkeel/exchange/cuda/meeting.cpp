#include "evenkeel/exchange/cuda/meeting.h"

#include <span>
#include <utility>

namespace evenkeel::cuda {

Meeting::Meeting(Communicator& comm) : comm_(comm), shown_(static_cast<std::size_t>(comm.size())) {}

void Meeting::show(EventLease event) {
  const DeviceEvent* const mine = event.get();
  comm_
      .all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(shown_)), words_,
                  "meeting")
      .wait();
  last_ = std::move(event);
}

void Meeting::meet(DeviceStream& stream) {
  if (comm_.size() == 1) return;
  stream.flush();
  show(stream.record());
  for (RankId rank : indices<RankId>(comm_.size()))
    if (rank != comm_.rank()) stream.enqueue_wait(*shown_[rank.offset()]);
}

void Meeting::follow(RankId root, DeviceStream& stream) {
  if (comm_.size() == 1) return;
  stream.flush();
  const bool leads = comm_.rank() == root;
  show(leads ? stream.record() : EventLease());
  if (!leads) stream.enqueue_wait(*shown_[root.offset()]);
}

}  // namespace evenkeel::cuda
