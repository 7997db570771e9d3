// How ranks communicate: matched messages between pairs of ranks, and the few collectives that a layer needs.
// This holds for every backend. What a backend promises in addition is in the header that starts it
// (thread/run_ranks.h, mpi/mpi_ranks.h, nccl/nccl_ranks.h).
//
// Order     Messages from rank a to rank b arrive in the order in which both issued them on one communicator;
//           there are no tags. Every rank of a communicator issues collectives in the same order. Messages do
//           not overtake messages, and collectives do not overtake collectives; the two kinds are matched
//           independently.
// Lifetime  An operation is posted when it is called, and complete when its Event is. Until then source bytes
//           must not change, and destination bytes belong to the operation. Source bytes must be ready when
//           the operation is called; on a DeviceStream, they must be ready in stream order.
// Stream    Operations run in the order of their stream. The backend defines which kinds of streams it
//           supports; both sides of an operation use the same kind.
// Deadline  The deadline is given where the ranks are started. A wait that lasts longer throws CommError,
//           names the rank that keeps the others waiting if that is known, and aborts.
// Errors    After any rank calls abort(), every blocked and every later call throws CommError with the first
//           cause. This holds for the communicator and for all others split from the same root. It cannot be
//           undone. Rank numbers in errors are those of the root.
// Unwinding If an exception other than CommError unwinds buffers that are posted, call abort() first.
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

// One message of a grouped exchange. Both peers must give the same size. Empty messages are not sent; either
// side may leave them out.
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

  // Gathers every rank's `mine` into `all`, in rank order. mine.size() is the same on all ranks, and
  // all.size() == size() * mine.size(); otherwise InvalidArgument. `mine` may be this rank's own part of
  // `all`. Here and below, `name` is a string literal that names the operation in errors and records, such as
  // "dispatch".
  virtual Event all_gather(std::span<const std::byte> mine, std::span<std::byte> all, Stream& stream,
                           const char* name = "all_gather") = 0;

  // Sends and receives any number of messages, to and from any peers including this rank itself, as one
  // operation. The slices may be temporary; their bytes may not.
  virtual Event send_receive(std::span<const SendSlice> sends, std::span<const ReceiveSlice> receives,
                             Stream& stream, const char* name) = 0;

  // Reduces each element over all ranks, in place, in rank order, so that all ranks get the same bits. Meant
  // for a handful of values: may keep size() times their bytes.
  Event all_reduce(std::span<std::int64_t> values, Reduction reduction, Stream& stream,
                   const char* name = "all_reduce") {
    return reduce(std::as_writable_bytes(values), ValueType::int64, reduction, stream, name);
  }
  Event all_reduce(std::span<double> values, Reduction reduction, Stream& stream,
                   const char* name = "all_reduce") {
    return reduce(std::as_writable_bytes(values), ValueType::float64, reduction, stream, name);
  }
  // As all_reduce(), for values whose type is known only at run time.
  virtual Event reduce(std::span<std::byte> values, ValueType type, Reduction reduction, Stream& stream,
                       const char* name) = 0;

  // Later work on `stream` starts after the work that every rank had on its stream before the barrier.
  virtual Event barrier(Stream& stream, const char* name = "barrier") = 0;

  // Ranks with the same color form a new communicator, ordered by their rank here. Collective, and blocks.
  virtual std::unique_ptr<Communicator> split(int color) = 0;

  // Throws if any rank has aborted. For long work without other calls.
  virtual void throw_if_aborted(const char* name) = 0;

  // Aborts this communicator and all that share its root, on all ranks, with a cause. Call it on the rank's
  // own thread.
  virtual void abort(const std::string& cause) noexcept = 0;
};

}  // namespace evenkeel
