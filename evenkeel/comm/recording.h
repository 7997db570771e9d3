// A communicator that counts calls, bytes and time by operation name.
//
//   RecordingCommunicator recorded(comm);
//   ... use `recorded` in place of `comm` ...
//   for (const OperationRecord& each : recorded.records()) ...
//
// Allocates only on the first use of a name. Used by the rank's own thread only, like the wrapped
// communicator.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "evenkeel/comm/forwarding.h"

namespace evenkeel {

// All operations of one rank that have one name.
struct OperationRecord : MessageTraffic {
  std::string name;
  std::int64_t calls = 0;
  // Time that the rank's thread spent on the operation, on a CpuStream. Copying uses CPU time; waiting for
  // peers does not. The wall clock and the CPU clock differ a little.
  double wall_seconds = 0;
  double cpu_seconds = 0;
  double wait_seconds() const { return std::max(0.0, wall_seconds - cpu_seconds); }
};

class RecordingCommunicator final : public ForwardingCommunicator {
 public:
  // `inner` must outlive this. If `node_of_rank` is given, bytes between nodes are counted too.
  explicit RecordingCommunicator(Communicator& inner, std::vector<int> node_of_rank = {});
  ~RecordingCommunicator() override;

  // In order of first use. Communicators split from this one share the records.
  std::span<const OperationRecord> records() const;
  // All zeros if no operation had that name.
  OperationRecord record(std::string_view name) const;
  OperationRecord total() const;
  // Sets all counts and times to zero; names stay.
  void reset();

  std::unique_ptr<Communicator> split(int color) override;

 private:
  class Recorder;
  RecordingCommunicator(std::unique_ptr<Communicator> owned, std::shared_ptr<Recorder> recorder);
  void begin(const char* name, Stream& stream) override;
  Event end(Event posted, const MessageTraffic& traffic, Stream& stream) override;

  std::shared_ptr<Recorder> recorder_;
};

}  // namespace evenkeel
