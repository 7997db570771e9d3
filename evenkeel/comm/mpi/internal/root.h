// The state of one rank that all its communicators share which were split from one root: what has been sent
// and received, what is pending, and why the ranks stopped.
//
// Two of MPI's communicators: one for bytes of operations, one for notices, which a rank reads in every call
// and in every wait.
//
// Stopping   A rank that stops, or hears that another has, tells all how many messages it has sent to each.
//            Then it takes what is still on its way to it, wanted or not, until it has as many as each told,
//            so that all sends end; what it expects beyond is cancelled. After that MPI holds no bytes of
//            anyone's.
// Blame      Whoever waits too long asks all others whom they wait for, and goes along the answers. Several
//            do so at once: each tells what it found to the lowest rank that answered, which speaks for all.
#pragma once

#include <mpi.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "evenkeel/base/running_time.h"
#include "evenkeel/comm/internal/blame.h"
#include "evenkeel/comm/mpi/internal/notice.h"

namespace evenkeel::internal {

class MpiOperation;

// The operation, or the end, that a rank waits for.
class Awaited {
 public:
  virtual ~Awaited() = default;
  virtual const char* name() const = 0;
  // Adds the ranks, of the root, that it still waits for.
  virtual void list_absent(std::vector<int>& ranks) const = 0;
};

class MpiRoot final : private Witness {
 public:
  using Clock = std::chrono::steady_clock;

  // Collective.
  MpiRoot(MPI_Comm parent, double deadline_seconds);
  ~MpiRoot() override;
  MpiRoot(const MpiRoot&) = delete;
  MpiRoot& operator=(const MpiRoot&) = delete;

  int rank() const { return rank_; }
  int size() const override { return size_; }
  MPI_Comm bytes() const { return bytes_; }

  // Every call begins with this: throws if the ranks have stopped.
  void check(const char* name);
  // An operation is about to be handed to MPI: `operation` is pending until end_of() it.
  void begin(MpiOperation& operation);
  void end_of(MpiOperation& operation) noexcept;
  void count_sent(int peer) { ++peers_[static_cast<std::size_t>(peer)].sent; }
  void count_received(int peer) { ++peers_[static_cast<std::size_t>(peer)].received; }
  // Whether all that the rank ever sends to this one is here.
  bool has_all_of(int peer) const;

  // Returns when the operation has ended.
  void wait(MpiOperation& operation);
  // Returns when all ranks have come here, and at once after an abort that the body has dealt with.
  void end();

  // The first cause stays, and goes to all.
  void abort(Cause cause, bool silent = false) noexcept;
  // "rank 2 failed: out of tokens".
  void abort_for(const char* action, std::string_view why) noexcept;
  // An operation that a peer may need is dropped.
  void leave_unfinished(const char* name) noexcept;
  // After an abort: returns when MPI holds none of this rank's bytes any more, or must not be called again.
  void let_go() noexcept;
  bool aborted() const { return cause_.has_value(); }
  const Cause& cause() const { return *cause_; }
  // The numbers of communicators that were split from this root.
  std::int64_t next_number() const { return next_number_; }
  void use_number(std::int64_t number) { next_number_ = number + 1; }

 private:
  struct Peer {
    std::uint64_t sent = 0;
    std::uint64_t received = 0;
    std::optional<std::uint64_t> told;  // messages to this rank, once it sends no more
    std::optional<Clock::time_point> left;
    bool ended = false;
    std::optional<Notice> answer;
  };
  // A buffer that MPI reads or writes, and that stays where it is until `request` is done.
  struct Message {
    int peer;
    std::string bytes;
    MPI_Request request = MPI_REQUEST_NULL;

    bool has_ended();
  };
  using Messages = std::list<Message>;
  // A wait, as long as it lasts.
  class Wait;

  MPI_Comm duplicate(MPI_Comm parent) const;
  int ranks_here() const;
  void wait_for_all(MPI_Request request) const;
  void tell(int peer, const Notice& notice);
  void tell_all(Notice notice);
  bool begin_receiving(MPI_Comm comm, int tag, Messages& messages) const;
  void take_notices();
  void take(const Notice& notice, int from);
  [[noreturn]] void stop(const char* name, double seconds);
  void blame_someone(const char* name);
  bool awaits_one_who_left(const Awaited& awaited) const;
  bool is_gone(int peer) const;
  int speaker() const;
  bool is_settled() const;
  const Message* take_unclaimed();
  void wait_for_everyone(const std::function<bool(int)>& has_come);
  void pause(unsigned& polls) const;

  bool list_awaited(int rank, std::vector<int>& ranks) const override;
  bool has_left(int rank) const override { return is_gone(rank); }
  std::string last_message(int rank) const override;

  double deadline_seconds_;
  MPI_Comm bytes_ = MPI_COMM_NULL;
  MPI_Comm notices_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 1;
  bool shares_cores_ = true;  // ranks that do give theirs away while they wait
  std::vector<Peer> peers_;
  std::vector<MpiOperation*> pending_;
  struct Mail {
    Messages outgoing;   // notices
    Messages incoming;   // notices
    Messages unclaimed;  // bytes that no operation expects
  };
  std::unique_ptr<Mail> mail_ = std::make_unique<Mail>();
  const Awaited* awaited_ = nullptr;
  bool ending_ = false;
  const char* left_unfinished_ = nullptr;
  const char* last_name_ = nullptr;
  Clock::time_point last_time_;
  std::uint64_t posted_ = 0;
  std::int64_t next_number_ = 1;  // 0 is the root's
  std::optional<Cause> cause_;
  int silent_ = -1;  // the rank that is to blame and did not answer
  bool has_let_go_ = false;
};

}  // namespace evenkeel::internal
