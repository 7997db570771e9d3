// A communicator that counts what passes through it, by the names of operations.
//
//   RecordingCommunicator recorded(comm);
//   ... use `recorded` in place of `comm` ...
//   for (const OperationRecord& each : recorded.records()) ...
//
// Allocates on the first use of a name only. For the rank's own thread, like what it wraps.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "evenkeel/comm/communicator.h"

namespace evenkeel {

// The operations of one rank under one name. Messages to oneself move within a rank: they are not counted. A
// collective counts as its bytes sent to each other rank, and as much received.
struct OperationRecord {
  std::string name;
  std::int64_t calls = 0;
  std::int64_t messages_sent = 0;
  std::int64_t messages_received = 0;
  std::int64_t bytes_sent = 0;
  std::int64_t bytes_received = 0;
  // Spent by the rank's thread in carrying the operation out, on a CpuStream: copying uses the CPU, waiting
  // for peers does not.
  double wall_seconds = 0;
  double cpu_seconds = 0;
  double wait_seconds() const { return wall_seconds - cpu_seconds; }
};

class RecordingCommunicator final : public Communicator {
 public:
  // `inner` must outlive this.
  explicit RecordingCommunicator(Communicator& inner);
  ~RecordingCommunicator() override;

  // In order of first use, together with those of all communicators split from this one.
  std::span<const OperationRecord> records() const;
  // Zeros where nothing had that name.
  OperationRecord record(std::string_view name) const;
  OperationRecord total() const;
  // Sets all figures to zero; names stay.
  void reset();

  RankId rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  Event all_gather(std::span<const std::byte> mine, std::span<std::byte> all, Stream& stream,
                   const char* name = "all_gather") override;
  Event send_receive(std::span<const SendSlice> sends, std::span<const ReceiveSlice> receives, Stream& stream,
                     const char* name) override;
  Event all_reduce(std::span<std::int64_t> values, Reduction reduction, Stream& stream,
                   const char* name = "all_reduce") override;
  Event all_reduce(std::span<double> values, Reduction reduction, Stream& stream,
                   const char* name = "all_reduce") override;
  Event barrier(Stream& stream, const char* name = "barrier") override;
  std::unique_ptr<Communicator> split(int color) override;
  void throw_if_aborted(const char* name) override { inner_.throw_if_aborted(name); }
  void abort(const std::string& cause) noexcept override { inner_.abort(cause); }

 private:
  class Recorder;
  RecordingCommunicator(std::unique_ptr<Communicator> owned, std::shared_ptr<Recorder> recorder);
  template <class Post>
  Event collective(const char* name, std::size_t bytes_to_each, Stream& stream, Post post);

  std::unique_ptr<Communicator> owned_;  // of a split communicator
  Communicator& inner_;
  std::shared_ptr<Recorder> recorder_;
};

}  // namespace evenkeel
