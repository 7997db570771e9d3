// A communicator whose collectives consist of messages. It checks arguments and turns calls into operations
// of the backend.
//
// Group     Has size() and what an Operation needs to know of the ranks.
// Operation Is filled by send(), receive(), exchange_empty() and reduce(); reduce() returns space for every
//           rank's values. It is in use from its posting until it is carried out or cancelled.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "evenkeel/comm/communicator.h"
#include "evenkeel/comm/internal/arguments.h"
#include "evenkeel/device/cpu/stream.h"

namespace evenkeel::internal {

// Messages and collectives are matched independently of each other.
enum class Channel : std::uint8_t { messages, collectives };

// The new communicator that split() makes on this rank.
struct Part {
  int color = 0;
  std::vector<int> members;  // their ranks in the parent
  int me = 0;                // this rank's index in `members`
  std::int64_t number = 0;   // the largest number that any rank of the parent proposed
};

template <class Group, class Operation>
class MessageCommunicator : public Communicator {
 public:
  // Starts with as many operations as a layer usually has pending at once; more are made on demand.
  MessageCommunicator(std::shared_ptr<Group> group, int me) : group_(std::move(group)), me_(me) {
    constexpr int kUsual = 4;
    for (int i = 0; i < kUsual; ++i) operations_.push_back(std::make_unique<Operation>(*group_, me_));
  }

  RankId rank() const final { return RankId(me_); }
  int size() const final { return group_->size(); }

  Event all_gather(std::span<const std::byte> mine, std::span<std::byte> all, Stream& stream,
                   const char* name) final {
    require_gather_sizes(mine.size(), all.size(), size(), name);
    Operation& operation = begin(name, Channel::collectives, stream);
    gather(operation, mine, all);
    return post(operation, stream);
  }

  Event send_receive(std::span<const SendSlice> sends, std::span<const ReceiveSlice> receives, Stream& stream,
                     const char* name) final {
    require_peers("sends", sends, size());
    require_peers("receives", receives, size());
    Operation& operation = begin(name, Channel::messages, stream);
    for (const SendSlice& slice : sends) operation.send(slice.peer.value(), slice.bytes);
    for (const ReceiveSlice& slice : receives) operation.receive(slice.peer.value(), slice.bytes);
    return post(operation, stream);
  }

  Event reduce(std::span<std::byte> values, ValueType type, Reduction reduction, Stream& stream,
               const char* name) final {
    Operation& operation = begin(name, Channel::collectives, stream);
    gather(operation, values, operation.reduce(values, type, reduction));
    return post(operation, stream);
  }

  Event barrier(Stream& stream, const char* name) final {
    Operation& operation = begin(name, Channel::collectives, stream);
    for (int peer = 0; peer < size(); ++peer) operation.exchange_empty(peer);
    return post(operation, stream);
  }

  std::unique_ptr<Communicator> split(int color) final {
    using Proposal = std::array<std::int64_t, 2>;
    const Proposal mine = {color, propose_number()};
    std::vector<Proposal> all(static_cast<std::size_t>(size()));
    CpuStream stream;
    all_gather(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)), stream, "split")
        .wait();
    Part part;
    part.color = color;
    for (int peer = 0; peer < size(); ++peer) {
      const Proposal& theirs = all[static_cast<std::size_t>(peer)];
      part.number = std::max(part.number, theirs[1]);
      if (theirs[0] != color) continue;
      if (peer == me_) part.me = static_cast<int>(part.members.size());
      part.members.push_back(peer);
    }
    return join(std::move(part));
  }

 protected:
  virtual Operation& begin(const char* name, Channel channel, Stream& stream) = 0;
  virtual Event post(Operation& operation, Stream& stream) = 0;
  virtual std::unique_ptr<Communicator> join(Part part) = 0;
  virtual std::int64_t propose_number() { return 0; }

  Group& group() const { return *group_; }
  Operation& idle_operation() {
    const auto idle = std::ranges::find_if(operations_, [](const auto& each) { return !each->in_use(); });
    if (idle != operations_.end()) return **idle;
    return *operations_.emplace_back(std::make_unique<Operation>(*group_, me_));
  }

 private:
  void gather(Operation& operation, std::span<const std::byte> mine, std::span<std::byte> all) const {
    for (int peer = 0; peer < size(); ++peer) {
      operation.send(peer, mine);
      operation.receive(peer, all.subspan(static_cast<std::size_t>(peer) * mine.size(), mine.size()));
    }
  }

  std::shared_ptr<Group> group_;
  int me_;
  std::vector<std::unique_ptr<Operation>> operations_;  // as many as were ever pending at once, or kUsual
};

}  // namespace evenkeel::internal
