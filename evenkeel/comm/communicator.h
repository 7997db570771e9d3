// How ranks talk: matched messages between pairs, and the few collectives that a layer needs. What is said
// here holds for every backend; what one promises beyond it stands where it is started (thread/run_ranks.h,
// nccl/nccl_ranks.h).
//
// Order     Messages from rank a to rank b arrive in the order in which both issued them on one communicator;
//           there are no tags. Every rank of a communicator issues collectives in one order. Messages and
//           collectives do not overtake their own kind, and are matched apart.
// Lifetime  An operation is posted when it is called and complete when its Event is. Until then source bytes
//           must stay as they are and destination bytes belong to the operation. Source bytes must be ready
//           when the operation is called; on a DeviceStream, in the order of the stream.
// Stream    Operations are carried out in the order of their stream. Which kinds of streams there are is the
//           backend's to say; both sides of an operation use the same kind.
// Deadline  A wait that outlasts the deadline given where the ranks were started throws CommError, naming the
//           rank that keeps the others waiting as far as that is known, and aborts.
// Errors    After abort(), by anyone, every blocked and every later call on the communicator and on all that
//           were split from the same root throws CommError with the first cause. There is no way back. Ranks
//           in errors are those of the root.
// Unwinding Before an exception of anything else lets posted bytes go away, call abort().
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "evenkeel/base/index.h"
#include "evenkeel/device/reduction.h"
#include "evenkeel/device/stream.h"

namespace evenkeel {

// One message of a grouped exchange. Peers must agree on its size; a message of no bytes is not sent, and
// both sides leave it out alike.
struct SendSlice {
  RankId peer;
  std::span<const std::byte> bytes;
};
struct ReceiveSlice {
  RankId peer;
  std::span<std::byte> bytes;
};

class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual RankId rank() const = 0;
  virtual int size() const = 0;

  // Every rank's `mine` in rank order into `all`; mine.size() is the same on all ranks and
  // all.size() == size() * mine.size(), or InvalidArgument. `mine` may be its own place in `all`.
  // Here and below, `name` says in errors and records what is going on, such as "dispatch"; a literal.
  virtual Event all_gather(std::span<const std::byte> mine, std::span<std::byte> all, Stream& stream,
                           const char* name = "all_gather") = 0;

  // Any number of messages to and from any peers, oneself included, as one operation. The slices may be
  // temporary, their bytes not.
  virtual Event send_receive(std::span<const SendSlice> sends, std::span<const ReceiveSlice> receives,
                             Stream& stream, const char* name) = 0;

  // Element-wise over all ranks, in rank order on every rank, so that all get the same bits. In place. Meant
  // for a handful of values: may keep size() times their bytes.
  Event all_reduce(std::span<std::int64_t> values, Reduction reduction, Stream& stream,
                   const char* name = "all_reduce") {
    return reduce(std::as_writable_bytes(values), ValueType::int64, reduction, stream, name);
  }
  Event all_reduce(std::span<double> values, Reduction reduction, Stream& stream,
                   const char* name = "all_reduce") {
    return reduce(std::as_writable_bytes(values), ValueType::float64, reduction, stream, name);
  }
  // The same, of values whose type is known at run time.
  virtual Event reduce(std::span<std::byte> values, ValueType type, Reduction reduction, Stream& stream,
                       const char* name) = 0;

  // Work that follows on `stream` comes after the work that every rank had on its stream before.
  virtual Event barrier(Stream& stream, const char* name = "barrier") = 0;

  // Ranks with the same color form a new communicator, ordered by their rank here. Collective, and blocks.
  virtual std::unique_ptr<Communicator> split(int color) = 0;

  // For work that takes long without a call: throws if any rank has aborted.
  virtual void throw_if_aborted(const char* name) = 0;

  // Ends this communicator and all that share its root, for all ranks, with a cause. By the rank's own
  // thread.
  virtual void abort(const std::string& cause) noexcept = 0;
};

}  // namespace evenkeel
