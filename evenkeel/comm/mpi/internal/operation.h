// One posted operation of an MPI rank: outgoing messages, incoming messages, and possibly a reduction at the
// end. Collectives consist of messages too, so a rank always knows whom it waits for.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "evenkeel/comm/internal/message_communicator.h"
#include "evenkeel/comm/mpi/internal/root.h"
#include "evenkeel/device/cpu/stream.h"

namespace evenkeel::internal {

// The ranks of one communicator.
struct MpiGroup {
  std::shared_ptr<MpiRoot> root;
  std::vector<int> members;  // their ranks in the root
  int number = 0;            // separates its messages from those of other communicators

  int size() const { return static_cast<int>(members.size()); }
  int root_rank(int member) const { return members[static_cast<std::size_t>(member)]; }
};

class MpiOperation final : public CpuOperation, public Awaited {
 public:
  MpiOperation(MpiGroup& group, int me);
  ~MpiOperation() override;

  void begin(const char* name, Channel channel);
  void send(int to, std::span<const std::byte> bytes);
  void receive(int from, std::span<std::byte> bytes);
  void exchange_empty(int peer);
  std::span<std::byte> reduce(std::span<std::byte> values, ValueType type, Reduction reduction);
  // Passes all messages to MPI.
  void publish();

  bool in_use() const { return in_use_; }
  const char* name() const override { return name_; }
  void list_absent(std::vector<int>& ranks) const override;

  // Number of messages that are not complete.
  std::size_t open() const { return open_; }
  // Polls MPI; returns true once all messages are complete. Aborts the root if a message has the wrong size.
  bool test();
  // Cancels the receives from ranks that have stopped and whose messages have all arrived.
  void cancel_receives_of_the_stopped();

 private:
  struct Piece {
    int peer;  // rank in the root
    bool incoming;
    std::byte* data;  // only read if outgoing
    std::size_t size;
  };

  void carry_out() override;
  void cancel() noexcept override;
  void add(int peer, bool incoming, std::byte* data, std::size_t size);
  void copy_own();
  void finish(const Piece& piece, const MPI_Status& status);
  void retire() noexcept;

  MpiGroup& group_;
  MpiRoot& root_;
  const int me_;  // rank in the group
  const char* name_ = "";
  Channel channel_ = Channel::messages;
  bool in_use_ = false;
  std::vector<Piece> pieces_;
  std::vector<MPI_Request> requests_;  // one per piece; null once complete
  std::size_t open_ = 0;
  std::vector<int> ended_;  // indices that MPI_Testsome reports
  std::vector<MPI_Status> statuses_;
  std::span<const std::byte> own_out_;  // collectives only
  std::span<std::byte> own_in_;
  std::span<std::byte> reduced_;  // empty if nothing is reduced
  std::vector<std::byte> gathered_;
  ValueType value_type_ = ValueType::int64;
  Reduction reduction_ = Reduction::sum;
};

}  // namespace evenkeel::internal
