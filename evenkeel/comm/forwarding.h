// Base of communicators that wrap another one: every operation is forwarded between two hooks.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "evenkeel/comm/communicator.h"

namespace evenkeel {

// Bytes that operations exchange with other ranks. Messages to oneself are not counted. A collective counts
// its bytes once for each other rank, sent and received.
struct MessageTraffic {
  std::int64_t messages_sent = 0;
  std::int64_t messages_received = 0;
  std::int64_t bytes_sent = 0;
  std::int64_t bytes_received = 0;
  std::int64_t bytes_sent_between_nodes = 0;  // part of bytes_sent to other nodes, if nodes are known

  MessageTraffic& operator+=(const MessageTraffic& other);
};

class ForwardingCommunicator : public Communicator {
 public:
  RankId rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  Event all_gather(std::span<const std::byte> mine, std::span<std::byte> all, Stream& stream,
                   const char* name = "all_gather") final;
  Event send_receive(std::span<const SendSlice> sends, std::span<const ReceiveSlice> receives, Stream& stream,
                     const char* name) final;
  Event reduce(std::span<std::byte> values, ValueType type, Reduction reduction, Stream& stream,
               const char* name) final;
  Event barrier(Stream& stream, const char* name = "barrier") final;
  void throw_if_aborted(const char* name) override { inner_.throw_if_aborted(name); }
  void abort(const std::string& cause) noexcept override { inner_.abort(cause); }

 protected:
  // `inner` must outlive this.
  explicit ForwardingCommunicator(Communicator& inner) : inner_(inner) {}
  explicit ForwardingCommunicator(std::unique_ptr<Communicator> inner)
      : owned_(std::move(inner)), inner_(*owned_) {}

  Communicator& inner() const { return inner_; }
  // The node of each rank; empty if unknown.
  const std::vector<int>& nodes() const { return nodes_; }
  void set_nodes(std::vector<int> node_of_rank) { nodes_ = std::move(node_of_rank); }

  // Called before and after an operation is posted. end() returns the operation's event or a later one.
  virtual void begin(const char* name, Stream& stream) = 0;
  virtual Event end(Event posted, const MessageTraffic&, Stream&) { return posted; }

 private:
  MessageTraffic to_each(std::size_t bytes) const;
  bool is_of_another_node(RankId peer) const {
    return !nodes_.empty() && nodes_[peer.offset()] != nodes_[rank().offset()];
  }

  std::unique_ptr<Communicator> owned_;
  Communicator& inner_;
  std::vector<int> nodes_;
};

}  // namespace evenkeel
