// A communicator that counts what passes through it, by the names of operations.
//
//   RecordingCommunicator recorded(comm);
//   ... use `recorded` in place of `comm` ...
//   for (const OperationRecord& each : recorded.records()) ...
//
// Allocates on the first use of a name only. For the rank's own thread, like what it wraps.
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

// The operations of one rank under one name.
struct OperationRecord : MessageTraffic {
  std::string name;
  std::int64_t calls = 0;
  // Spent by the rank's thread in carrying the operation out, on a CpuStream: copying uses the CPU, waiting
  // for peers does not. Their clocks differ a little.
  double wall_seconds = 0;
  double cpu_seconds = 0;
  double wait_seconds() const { return std::max(0.0, wall_seconds - cpu_seconds); }
};

class RecordingCommunicator final : public ForwardingCommunicator {
 public:
  // `inner` must outlive this. With the node of each rank, bytes between nodes are counted too.
  explicit RecordingCommunicator(Communicator& inner, std::vector<int> node_of_rank = {});
  ~RecordingCommunicator() override;

  // In order of first use, together with those of all communicators split from this one.
  std::span<const OperationRecord> records() const;
  // Zeros where nothing had that name.
  OperationRecord record(std::string_view name) const;
  OperationRecord total() const;
  // Sets all figures to zero; names stay.
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
