// The communicator of one rank that is a thread: checks arguments, and turns calls into operations.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "evenkeel/comm/communicator.h"
#include "evenkeel/comm/thread/internal/operation.h"

namespace evenkeel::internal {

class ThreadCommunicator final : public Communicator {
 public:
  ThreadCommunicator(std::shared_ptr<Group> group, int me);

  RankId rank() const override { return RankId(me_); }
  int size() const override { return group_->size(); }
  Event all_gather(std::span<const std::byte> mine, std::span<std::byte> all, Stream& stream,
                   const char* name) override;
  Event send_receive(std::span<const SendSlice> sends, std::span<const ReceiveSlice> receives, Stream& stream,
                     const char* name) override;
  Event reduce(std::span<std::byte> values, ValueType type, Reduction reduction, Stream& stream,
               const char* name) override;
  Event barrier(Stream& stream, const char* name) override;
  std::unique_ptr<Communicator> split(int color) override;
  void throw_if_aborted(const char* name) override;
  void abort(const std::string& cause) noexcept override;

 private:
  Operation& begin(const char* name, Channel channel, Stream& stream);
  Event post(Operation& operation, Stream& stream);

  World& world() const { return group_->world(); }
  int world_rank() const { return group_->world_rank(me_); }

  std::shared_ptr<Group> group_;
  int me_;
  std::uint64_t splits_ = 0;
  std::vector<std::unique_ptr<Operation>> operations_;  // no fewer than were ever pending at once
};

}  // namespace evenkeel::internal
