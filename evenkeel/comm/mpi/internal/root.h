// The state of one rank that is shared by the root communicator and all communicators split from it: messages
// sent and received, pending operations, and why the ranks stopped.
//
// It uses two MPI communicators: one for the bytes of operations, one for notices. A rank reads notices in
// every call and in every wait.
//
// Stopping  A rank that stops, or hears that another has stopped, announces to every peer how many messages
//           it has sent to that peer. It then receives everything that is still on its way, expected or not,
//           until it has the number that each peer announced. So all sends complete. It cancels the receives
//           that remain. After that MPI holds no rank's bytes.
// Blame     A rank that waits too long asks all others whom they wait for, and follows the answers to the
//           rank that waits for nobody. Several ranks may do so at once: each sends its finding to the lowest
//           rank that answered and also waits; that rank stops all.
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
#include "evenkeel/comm/internal/culprit.h"
#include "evenkeel/comm/mpi/internal/notice.h"

namespace evenkeel::internal {

class MpiOperation;

// What a rank waits for: an operation, or the end of the run.
class Awaited {
 public:
  virtual ~Awaited() = default;
  virtual const char* name() const = 0;
  // Adds the ranks it still waits for, numbered as in the root.
  virtual void list_absent(std::vector<int>& ranks) const = 0;
};

class MpiRoot final : private WaitGraph {
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

  // Called at the start of every call: throws if the ranks have stopped.
  void check(const char* name);
  // Call it just before handing `operation` to MPI. The operation is pending until end_of().
  void begin(MpiOperation& operation);
  void end_of(MpiOperation& operation) noexcept;
  void count_sent(int peer) { ++peers_[static_cast<std::size_t>(peer)].sent; }
  void count_received(int peer) { ++peers_[static_cast<std::size_t>(peer)].received; }
  // True if `peer` has stopped sending and all its messages to this rank are here.
  bool has_all_of(int peer) const;

  // Returns when the operation is complete.
  void wait(MpiOperation& operation);
  // Returns when all ranks have called it. Returns at once if the body handled an abort.
  void end();

  // Stops all ranks. The first cause is kept.
  void abort(Cause cause, bool unresponsive = false) noexcept;
  // The cause reads "rank 2 failed: out of tokens".
  void abort_for(const char* action, std::string_view why) noexcept;
  // Records that an operation was dropped that a peer may still need, and aborts.
  void leave_unfinished(const char* name) noexcept;
  // After an abort: returns when MPI holds none of this rank's bytes any more, or MPI has been closed.
  void drain() noexcept;
  bool aborted() const { return cause_.has_value(); }
  const Cause& cause() const { return *cause_; }
  // Numbers for communicators that are split from this root.
  std::int64_t next_number() const { return next_number_; }
  void use_number(std::int64_t number) { next_number_ = number + 1; }

 private:
  struct Peer {
    std::uint64_t sent = 0;
    std::uint64_t received = 0;
    std::optional<std::uint64_t> announced_messages;  // all to this rank; set once the peer sends no more
    std::optional<Clock::time_point> left_at;
    bool ended = false;
    std::optional<Notice> answer;
  };
  // A buffer that MPI reads or writes. It must not move until `request` is complete.
  struct Message {
    int peer;
    std::string bytes;
    MPI_Request request = MPI_REQUEST_NULL;

    bool has_ended();
  };
  using Messages = std::list<Message>;
  // Exists during one wait.
  class Wait;

  MPI_Comm duplicate(MPI_Comm parent) const;
  int ranks_here() const;
  void wait_for_all(MPI_Request request) const;
  void send(int peer, const Notice& notice);
  void send_to_all(Notice notice);
  bool begin_receiving(MPI_Comm comm, int tag, Messages& messages) const;
  void receive_notices();
  void handle(const Notice& notice, int from);
  [[noreturn]] void stop(const char* name, double seconds);
  void report_culprit(const char* name);
  bool awaits_one_who_left(const Awaited& awaited) const;
  bool is_gone(int peer) const;
  int reporting_rank() const;
  bool is_drained() const;
  const Message* receive_unexpected();
  void wait_for_all_ranks(const std::function<bool(int)>& has_arrived);
  void pause(unsigned& polls) const;

  bool list_awaited(int rank, std::vector<int>& ranks) const override;
  bool has_left(int rank) const override { return is_gone(rank); }
  std::string last_message(int rank) const override;

  double deadline_seconds_;
  MPI_Comm bytes_ = MPI_COMM_NULL;
  MPI_Comm notices_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 1;
  bool shares_cores_ = true;  // whether polling ranks yield their core
  std::vector<Peer> peers_;
  std::vector<MpiOperation*> pending_;
  struct MessageBuffers {
    Messages outgoing;    // notices
    Messages incoming;    // notices
    Messages unexpected;  // bytes that no operation expects
  };
  std::unique_ptr<MessageBuffers> buffers_ = std::make_unique<MessageBuffers>();
  const Awaited* awaited_ = nullptr;
  bool ending_ = false;
  const char* left_unfinished_ = nullptr;
  const char* last_name_ = nullptr;
  Clock::time_point last_time_;
  std::uint64_t posted_ = 0;
  std::int64_t next_number_ = 1;  // 0 is the root's
  std::optional<Cause> cause_;
  int unresponsive_rank_ = -1;  // the blamed rank, if it did not answer
  bool drain_called_ = false;
};

}  // namespace evenkeel::internal
