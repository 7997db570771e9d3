// One posted operation of a rank on MPI: messages out, messages in, and at the end perhaps a reduction.
// Collectives are made of messages as well, so that a rank knows whom it waits for.
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
  std::vector<int> members;  // by their rank in the root
  int number = 0;            // tells its messages from those of others

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
  void meet(int peer);
  std::span<std::byte> reduce(std::span<std::byte> values, ValueType type, Reduction reduction);
  // Hands everything to MPI.
  void publish();

  bool in_use() const { return in_use_; }
  const char* name() const override { return name_; }
  void list_absent(std::vector<int>& ranks) const override;

  // Messages that are not done.
  std::size_t open() const { return open_; }
  // Looks at what MPI has done; true when all of it is. Aborts the root where a message has another size.
  bool test();
  // Once no more comes from a rank: what is expected of it beyond.
  void cancel_receives_of_the_stopped();

 private:
  struct Piece {
    int peer;  // in the root
    bool incoming;
    std::byte* data;  // not written to where it goes out
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
  const int me_;  // in the group
  const char* name_ = "";
  Channel channel_ = Channel::messages;
  bool in_use_ = false;
  std::vector<Piece> pieces_;
  std::vector<MPI_Request> requests_;  // of each piece; null once it is done
  std::size_t open_ = 0;
  std::vector<int> ended_;  // what MPI says of a test
  std::vector<MPI_Status> statuses_;
  std::span<const std::byte> own_out_;  // of a collective
  std::span<std::byte> own_in_;
  std::span<std::byte> reduced_;  // none where nothing is reduced
  std::vector<std::byte> gathered_;
  ValueType value_type_ = ValueType::int64;
  Reduction reduction_ = Reduction::sum;
};

}  // namespace evenkeel::internal
