#include "evenkeel/comm/forwarding.h"

namespace evenkeel {

MessageTraffic& MessageTraffic::operator+=(const MessageTraffic& other) {
  messages_sent += other.messages_sent;
  messages_received += other.messages_received;
  bytes_sent += other.bytes_sent;
  bytes_received += other.bytes_received;
  bytes_sent_between_nodes += other.bytes_sent_between_nodes;
  return *this;
}

MessageTraffic ForwardingCommunicator::to_each(std::size_t bytes) const {
  const std::int64_t others = size() - 1;
  const std::int64_t messages = bytes == 0 ? 0 : others, sent = others * static_cast<std::int64_t>(bytes);
  std::int64_t elsewhere = 0;
  for (RankId peer : indices<RankId>(nodes_.size())) elsewhere += is_of_another_node(peer) ? 1 : 0;
  return {messages, messages, sent, sent, elsewhere * static_cast<std::int64_t>(bytes)};
}

Event ForwardingCommunicator::all_gather(std::span<const std::byte> mine, std::span<std::byte> all,
                                         Stream& stream, const char* name) {
  begin(name, stream);
  return end(inner_.all_gather(mine, all, stream, name), to_each(mine.size()), stream);
}

Event ForwardingCommunicator::send_receive(std::span<const SendSlice> sends,
                                           std::span<const ReceiveSlice> receives, Stream& stream,
                                           const char* name) {
  begin(name, stream);
  const Event posted = inner_.send_receive(sends, receives, stream, name);
  MessageTraffic traffic;
  const auto count = [&](const auto& slices, std::int64_t& messages, std::int64_t& bytes) {
    for (const auto& slice : slices) {
      if (slice.peer == rank() || slice.bytes.empty()) continue;
      messages += 1;
      bytes += std::ssize(slice.bytes);
    }
  };
  count(sends, traffic.messages_sent, traffic.bytes_sent);
  count(receives, traffic.messages_received, traffic.bytes_received);
  for (const SendSlice& slice : sends)
    if (is_of_another_node(slice.peer)) traffic.bytes_sent_between_nodes += std::ssize(slice.bytes);
  return end(posted, traffic, stream);
}

Event ForwardingCommunicator::reduce(std::span<std::byte> values, ValueType type, Reduction reduction,
                                     Stream& stream, const char* name) {
  begin(name, stream);
  return end(inner_.reduce(values, type, reduction, stream, name), to_each(values.size()), stream);
}

Event ForwardingCommunicator::barrier(Stream& stream, const char* name) {
  begin(name, stream);
  return end(inner_.barrier(stream, name), {}, stream);
}

}  // namespace evenkeel
