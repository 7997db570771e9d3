// Matches messages with receives: one lane per ordered pair of ranks, filled from both sides in issue order.
// The side that comes second finds the other one waiting, so a lane never holds messages and receives at
// once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "evenkeel/comm/internal/message_communicator.h"
#include "evenkeel/device/device_stream.h"

namespace evenkeel::internal {

class Operation;
class World;
struct Message;

enum class Place : std::uint8_t {
  nowhere,
  lane,     // waiting for the other side
  arrived,  // matched, not yet copied
  taken,    // being copied by the receiver, or copied
};

struct Receive {
  std::span<std::byte> bytes{};
  int from = 0;
  Operation* operation = nullptr;
  Place place = Place::nowhere;  // this and the members below: guarded by the receiver's mailbox
  Message* message = nullptr;
  Receive* next = nullptr;
};

struct Message {
  std::span<const std::byte> bytes{};
  int to = 0;
  Operation* operation = nullptr;
  const DeviceEvent* ready = nullptr;  // on a device: the bytes are ready after this event
  EventLease copied{};           // on a device: the event after the read; guarded by the sender's mailbox
  bool acknowledged = false;     // guarded by the sender's mailbox
  Place place = Place::nowhere;  // this and the members below: guarded by the receiver's mailbox
  Receive* receive = nullptr;
  Message* next = nullptr;
};

// A queue linked through its items; it never allocates.
template <class Item>
class Fifo {
 public:
  bool empty() const { return first_ == nullptr; }
  Item* first() const { return first_; }

  void push(Item& item) {
    item.next = nullptr;
    (first_ == nullptr ? first_ : last_->next) = &item;
    last_ = &item;
  }

  Item& pop() {
    Item& item = *first_;
    first_ = item.next;
    return item;
  }

  void remove(Item& item) {
    Item* before = nullptr;
    for (Item* at = first_; at != &item; at = at->next) before = at;
    (before == nullptr ? first_ : before->next) = item.next;
    if (last_ == &item) last_ = before;
  }

 private:
  Item* first_ = nullptr;
  Item* last_ = nullptr;  // meaningless if empty
};

struct Lane {
  Fifo<Message> messages;
  Fifo<Receive> receives;
};

// The ranks of one communicator and all their lanes.
class Group {
 public:
  Group(World& world, std::vector<int> members)
      : world_(world), members_(std::move(members)), lanes_(2 * members_.size() * members_.size()) {}

  int size() const { return static_cast<int>(members_.size()); }
  World& world() const { return world_; }

  // The member's rank in the root communicator, which mailboxes and errors use.
  int world_rank(int member) const { return members_[static_cast<std::size_t>(member)]; }

  // Guarded by the mailbox of `to`.
  Lane& lane(Channel channel, int from, int to) {
    const auto row = static_cast<std::size_t>(to) + (channel == Channel::messages ? 0 : members_.size());
    return lanes_[row * members_.size() + static_cast<std::size_t>(from)];
  }

 private:
  World& world_;
  std::vector<int> members_;
  std::vector<Lane> lanes_;
};

}  // namespace evenkeel::internal
