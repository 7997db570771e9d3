#include "evenkeel/comm/mpi/internal/root.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <exception>
#include <functional>
#include <utility>

#include "evenkeel/base/clock.h"
#include "evenkeel/base/cores.h"
#include "evenkeel/base/error.h"
#include "evenkeel/comm/mpi/internal/operation.h"
#include "evenkeel/comm/mpi/internal/session.h"

namespace evenkeel::internal {

namespace {

constexpr int kNoticeTag = 0;
constexpr unsigned kPollsBeforeYielding = 2000;
constexpr unsigned kPollsToANotice = 16;
// Messages that a rank sent before its `left` notice may become visible this much later.
constexpr std::chrono::milliseconds kLeftGracePeriod{100};

std::chrono::duration<double> since(MpiRoot::Clock::time_point start) {
  return MpiRoot::Clock::now() - start;
}

MpiRoot::Clock::duration ticks(double seconds) {
  return std::chrono::duration_cast<MpiRoot::Clock::duration>(std::chrono::duration<double>(seconds));
}

// How long the other ranks have to answer a question.
double grace_seconds(double deadline_seconds) {
  return std::max(1.0, deadline_seconds / 4);
}

}  // namespace

// While a Wait exists, its rank tells others whom it waits for.
class MpiRoot::Wait {
 public:
  Wait(MpiRoot& root, const Awaited* awaited)
      : root_(root), limit_(ticks(root.deadline_seconds_)), waited_(limit_ / 8) {
    root_.awaited_ = awaited;
  }
  ~Wait() { root_.awaited_ = nullptr; }
  Wait(const Wait&) = delete;
  Wait& operator=(const Wait&) = delete;

  double seconds() const { return since(start_).count(); }
  bool is_too_long() { return waited_.look() >= limit_; }
  // Call after polling; `found` says whether anything had arrived.
  void pause(bool found) {
    root_.pause(polls_);
    const double now = thread_cpu_seconds();
    if (found)
      cpu_ = now;
    else
      thread_polling_seconds += now - cpu_;  // so thread_cpu_seconds() reads cpu_ again
  }

 private:
  MpiRoot& root_;
  Clock::time_point start_ = Clock::now();
  Clock::duration limit_;
  RunningTime waited_;
  double cpu_ = thread_cpu_seconds();
  unsigned polls_ = 0;
};

MpiRoot::MpiRoot(MPI_Comm parent, double deadline_seconds) : deadline_seconds_(deadline_seconds) {
  MPI_Comm_rank(parent, &rank_);
  MPI_Comm_size(parent, &size_);
  peers_.resize(static_cast<std::size_t>(size_));
  bytes_ = duplicate(parent);
  notices_ = duplicate(parent);
  shares_cores_ = ranks_here() > usable_cores();
}

MpiRoot::~MpiRoot() {
  RunningTime waited(ticks(deadline_seconds_) / 8);
  for (unsigned polls = 0; !Session::closed() && !buffers_->outgoing.empty(); pause(polls)) {
    buffers_->outgoing.remove_if(std::mem_fn(&Message::has_ended));
    if (!buffers_->outgoing.empty() && waited.look() > ticks(deadline_seconds_))
      Session::close(
          fmt::format("rank {} does not receive the notices sent to it", buffers_->outgoing.front().peer));
  }
  const bool arrives = !Session::closed() && !std::ranges::all_of(buffers_->incoming, &Message::has_ended);
  if (Session::closed() || arrives)
    static_cast<void>(buffers_.release());  // MPI may still read or write the buffers in it
  // After an abort, notices may still be on their way. A communicator that reuses these could receive them.
  if (Session::closed() || aborted()) return;
  MPI_Comm_free(&bytes_);
  MPI_Comm_free(&notices_);
}

MPI_Comm MpiRoot::duplicate(MPI_Comm parent) const {
  MPI_Comm made = MPI_COMM_NULL;
  MPI_Request request = MPI_REQUEST_NULL;
  require_success(MPI_Comm_idup(parent, &made, &request), rank_, "MPI_Comm_idup");
  wait_for_all(request);
  MPI_Comm_set_errhandler(made, MPI_ERRORS_RETURN);
  return made;
}

// The number of ranks with this rank's host name.
int MpiRoot::ranks_here() const {
  char name[MPI_MAX_PROCESSOR_NAME] = {};
  int length = 0;
  MPI_Get_processor_name(name, &length);
  const std::uint64_t mine = std::hash<std::string_view>{}({name, static_cast<std::size_t>(length)});
  std::vector<std::uint64_t> all(peers_.size());
  MPI_Request request = MPI_REQUEST_NULL;
  require_success(MPI_Iallgather(&mine, 1, MPI_UINT64_T, all.data(), 1, MPI_UINT64_T, bytes_, &request),
                  rank_, "MPI_Iallgather");
  wait_for_all(request);
  return static_cast<int>(std::ranges::count(all, mine));
}

// During set-up nobody can tell which rank is late, so all ranks wait as long as a later wait could take.
void MpiRoot::wait_for_all(MPI_Request request) const {
  const double longest = deadline_seconds_ + grace_seconds(deadline_seconds_);
  const Clock::time_point start = Clock::now();
  RunningTime waited(ticks(deadline_seconds_) / 8);
  unsigned polls = 0;
  for (int done = 0; done == 0; pause(polls)) {
    require_success(MPI_Test(&request, &done, MPI_STATUS_IGNORE), rank_, "MPI_Test");
    if (done != 0 || waited.look() < ticks(longest)) continue;
    const std::string why = fmt::format("not all ranks have come to the set-up within {:.3g} s", longest);
    Session::close(why);
    throw CommError(-1, "set-up", since(start).count(), why);
  }
}

void MpiRoot::check(const char* name) {
  if (!cause_) receive_notices();
  if (cause_) stop(name, 0);
}

void MpiRoot::begin(MpiOperation& operation) {
  pending_.push_back(&operation);
  last_name_ = operation.name();
  last_time_ = Clock::now();
  ++posted_;
}

void MpiRoot::end_of(MpiOperation& operation) noexcept {
  std::erase(pending_, &operation);
}

bool MpiRoot::has_all_of(int peer) const {
  const Peer& of = peers_[static_cast<std::size_t>(peer)];
  return of.announced_messages && of.received >= *of.announced_messages;
}

void MpiRoot::wait(MpiOperation& operation) {
  Wait wait(*this, &operation);
  std::size_t open = operation.open();
  for (unsigned polls = 0;; ++polls) {
    const bool done = operation.test();
    // Reads notices also when done: a message may have come from a rank whose bytes were already invalid.
    if (done || polls % kPollsToANotice == 0) receive_notices();
    if (!cause_ && !done && (wait.is_too_long() || awaits_one_who_left(operation)))
      report_culprit(operation.name());
    if (cause_) stop(operation.name(), wait.seconds());
    if (done) return;
    wait.pause(operation.open() < std::exchange(open, operation.open()));
  }
}

namespace {

class EndOfRun final : public Awaited {
 public:
  EndOfRun(int ranks, std::function<bool(int)> has_arrived)
      : ranks_(ranks), has_arrived_(std::move(has_arrived)) {}
  const char* name() const override { return "the end"; }
  void list_absent(std::vector<int>& ranks) const override {
    for (int rank = 0; rank < ranks_; ++rank)
      if (!has_arrived_(rank)) ranks.push_back(rank);
  }

 private:
  int ranks_;
  std::function<bool(int)> has_arrived_;
};

}  // namespace

void MpiRoot::end() {
  if (left_unfinished_ != nullptr) throw CommError(rank_, left_unfinished_, 0, cause_->message);
  if (cause_) return;
  ending_ = true;
  peers_[static_cast<std::size_t>(rank_)].announced_messages = peers_[static_cast<std::size_t>(rank_)].sent;
  send_to_all({.kind = Notice::Kind::left});
  wait_for_all_ranks([this](int peer) { return has_all_of(peer); });
  // If any rank received a message too many, all ranks fail.
  send_to_all({.kind = Notice::Kind::ended});
  wait_for_all_ranks(
      [this](int peer) { return peer == rank_ || peers_[static_cast<std::size_t>(peer)].ended; });
}

void MpiRoot::wait_for_all_ranks(const std::function<bool(int)>& has_arrived) {
  const EndOfRun everyone(size_, has_arrived);
  Wait wait(*this, &everyone);
  for (std::vector<int> absent(1); !absent.empty(); wait.pause(false)) {
    receive_notices();
    for (MpiOperation* operation : pending_) operation->test();  // of communicators that outlive the body
    if (const Message* message = receive_unexpected(); message != nullptr && !cause_)
      abort({message->peer, rank_, rank_,
             fmt::format("rank {} sent {} bytes that rank {} never received", message->peer,
                         message->bytes.size(), rank_)});
    absent.clear();
    everyone.list_absent(absent);
    if (!cause_ && !absent.empty() && wait.is_too_long()) report_culprit(everyone.name());
    if (cause_) stop(everyone.name(), wait.seconds());
  }
}

void MpiRoot::send(int peer, const Notice& notice) {
  Session::require_open(rank_);
  buffers_->outgoing.remove_if(std::mem_fn(&Message::has_ended));
  Message& sent = buffers_->outgoing.emplace_back(Message{peer, pack(notice)});
  require_success(MPI_Isend(sent.bytes.data(), static_cast<int>(sent.bytes.size()), MPI_BYTE, peer,
                            kNoticeTag, notices_, &sent.request),
                  rank_, "MPI_Isend");
}

void MpiRoot::send_to_all(Notice notice) {
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    notice.messages = peers_[static_cast<std::size_t>(peer)].sent;
    send(peer, notice);
  }
}

bool MpiRoot::Message::has_ended() {
  int ended = 0;
  MPI_Test(&request, &ended, MPI_STATUS_IGNORE);
  return ended != 0;
}

// Starts receiving the next message; false if none has come. It does not wait for the bytes: if the sender
// dies, a large message never completes.
bool MpiRoot::begin_receiving(MPI_Comm comm, int tag, Messages& messages) const {
  Session::require_open(rank_);
  int found = 0, size = 0;
  MPI_Message message = MPI_MESSAGE_NULL;
  MPI_Status status;
  require_success(MPI_Improbe(MPI_ANY_SOURCE, tag, comm, &found, &message, &status), rank_, "MPI_Improbe");
  if (found == 0) return false;
  MPI_Get_count(&status, MPI_BYTE, &size);
  Message& begun =
      messages.emplace_back(Message{status.MPI_SOURCE, std::string(static_cast<std::size_t>(size), '\0')});
  require_success(MPI_Imrecv(begun.bytes.data(), size, MPI_BYTE, &message, &begun.request), rank_,
                  "MPI_Imrecv");
  return true;
}

void MpiRoot::receive_notices() {
  while (begin_receiving(notices_, kNoticeTag, buffers_->incoming)) {
  }
  // Notices of one peer are handled in order.
  for (auto each = buffers_->incoming.begin(); each != buffers_->incoming.end();) {
    const bool is_next = std::none_of(buffers_->incoming.begin(), each,
                                      [&](const Message& before) { return before.peer == each->peer; });
    if (is_next && each->has_ended()) {
      handle(unpack(each->bytes), each->peer);
      each = buffers_->incoming.erase(each);
    } else {
      ++each;
    }
  }
}

void MpiRoot::handle(const Notice& notice, int from) {
  Peer& peer = peers_[static_cast<std::size_t>(from)];
  switch (notice.kind) {
    case Notice::Kind::stop:
      peer.announced_messages = notice.messages;
      return abort(notice.cause, notice.unresponsive);
    case Notice::Kind::left:
      peer.announced_messages = notice.messages;
      peer.left_at = Clock::now();
      return;
    case Notice::Kind::ended:
      peer.ended = true;
      return;
    case Notice::Kind::ask: {
      Notice answer{.kind = Notice::Kind::answer, .waits = awaited_ != nullptr && !ending_};
      if (answer.waits) awaited_->list_absent(answer.awaited);
      std::ranges::sort(answer.awaited);
      answer.awaited.erase(std::ranges::unique(answer.awaited).begin(), answer.awaited.end());
      answer.last_message = last_message(rank_);
      return send(from, answer);
    }
    case Notice::Kind::answer:
      peer.answer = notice;
      return;
    case Notice::Kind::stop_request:
      return abort(notice.cause, notice.unresponsive);
  }
}

void MpiRoot::stop(const char* name, double seconds) {
  awaited_ = nullptr;
  drain();
  const int peer = cause_->peer == rank_ && cause_->other >= 0 ? cause_->other : cause_->peer;
  throw CommError(peer, name, seconds, cause_->message);
}

void MpiRoot::abort(Cause cause, bool unresponsive) noexcept {
  if (cause_) return;
  unresponsive_rank_ = unresponsive ? cause.peer : -1;
  cause_ = std::move(cause);
  Peer& me = peers_[static_cast<std::size_t>(rank_)];
  me.announced_messages = me.sent;
  try {
    send_to_all({.kind = Notice::Kind::stop, .cause = *cause_, .unresponsive = unresponsive});
  } catch (const std::exception& error) {
    Session::close(error.what());
  }
}

void MpiRoot::leave_unfinished(const char* name) noexcept {
  left_unfinished_ = name;
  abort_for("left unfinished", name);
}

void MpiRoot::abort_for(const char* action, std::string_view why) noexcept {
  Cause cause{rank_, -1, rank_, {}};
  try {
    cause.message = fmt::format("rank {} {}: {}", rank_, action, why);
  } catch (const std::exception&) {  // out of memory: the text is lost, the rank's number is not
  }
  abort(std::move(cause));
}

void MpiRoot::report_culprit(const char* name) {
  const double grace = grace_seconds(deadline_seconds_);
  for (int peer = 0; peer < size_; ++peer)
    if (peer != rank_) send(peer, {.kind = Notice::Kind::ask});
  unsigned polls = 0;
  const auto receive_notices_until = [&](const auto& enough) {
    RunningTime waited(ticks(grace) / 8);
    while (!cause_ && !enough() && waited.look() < ticks(grace)) {
      receive_notices();
      pause(polls);
    }
  };
  const auto has_answered = [&](int peer) {
    return peer == rank_ || peers_[static_cast<std::size_t>(peer)].answer.has_value();
  };
  receive_notices_until([&] {
    for (int peer = 0; peer < size_; ++peer)
      if (!has_answered(peer)) return false;
    return true;
  });
  std::vector<int> absent;
  awaited_->list_absent(absent);
  if (cause_ || absent.empty()) return;  // another rank has reported, or all have arrived meanwhile
  const Cause cause = find_culprit(*this, rank_, name, deadline_seconds_);
  const bool unresponsive = !has_answered(cause.peer);
  if (const int reporter = reporting_rank(); reporter != rank_) {
    send(reporter, {.kind = Notice::Kind::stop_request, .cause = cause, .unresponsive = unresponsive});
    receive_notices_until([] { return false; });
  }
  abort(cause, unresponsive);
}

// The lowest rank that also waits; it reports for all.
int MpiRoot::reporting_rank() const {
  for (int peer = 0; peer < rank_; ++peer)
    if (const auto& answer = peers_[static_cast<std::size_t>(peer)].answer; answer && answer->waits)
      return peer;
  return rank_;
}

bool MpiRoot::is_gone(int peer) const {
  const Peer& of = peers_[static_cast<std::size_t>(peer)];
  return of.left_at && has_all_of(peer) && Clock::now() - *of.left_at > kLeftGracePeriod;
}

bool MpiRoot::awaits_one_who_left(const Awaited& awaited) const {
  if (std::ranges::none_of(peers_, [](const Peer& peer) { return peer.left_at.has_value(); })) return false;
  std::vector<int> absent;
  awaited.list_absent(absent);
  return std::ranges::any_of(absent, [this](int peer) { return is_gone(peer); });
}

bool MpiRoot::list_awaited(int rank, std::vector<int>& ranks) const {
  if (rank == rank_) {
    awaited_->list_absent(ranks);
    return true;
  }
  const auto& answer = peers_[static_cast<std::size_t>(rank)].answer;
  if (!answer || !answer->waits) return false;
  ranks.insert(ranks.end(), answer->awaited.begin(), answer->awaited.end());
  return true;
}

std::string MpiRoot::last_message(int rank) const {
  if (rank == rank_)
    return describe_last(rank, last_name_, last_name_ == nullptr ? 0 : since(last_time_).count(), posted_);
  const auto& answer = peers_[static_cast<std::size_t>(rank)].answer;
  return answer ? answer->last_message : "";
}

void MpiRoot::drain() noexcept {
  if (std::exchange(drain_called_, true) || Session::closed()) return;
  try {
    RunningTime waited(ticks(deadline_seconds_) / 8);
    unsigned polls = 0;
    while (!is_drained() && waited.look() < ticks(deadline_seconds_)) {
      receive_notices();
      receive_unexpected();
      for (MpiOperation* operation : pending_) {
        operation->test();
        operation->cancel_receives_of_the_stopped();
      }
      pause(polls);
    }
    if (!is_drained() || unresponsive_rank_ >= 0) Session::close(cause_->message);
  } catch (const std::exception& error) {
    Session::close(error.what());
  }
}

bool MpiRoot::is_drained() const {
  for (int peer = 0; peer < size_; ++peer)
    if (peer != unresponsive_rank_ && !has_all_of(peer)) return false;
  std::vector<int> absent;
  for (const MpiOperation* operation : pending_) operation->list_absent(absent);
  return std::ranges::all_of(absent, [this](int peer) { return peer == unresponsive_rank_; });
}

// Receives messages that no operation of this rank expects. Returns the last one, or null.
const MpiRoot::Message* MpiRoot::receive_unexpected() {
  const Message* last = nullptr;
  while (begin_receiving(bytes_, MPI_ANY_TAG, buffers_->unexpected)) last = &buffers_->unexpected.back();
  for (Message& each : buffers_->unexpected)
    if (each.request != MPI_REQUEST_NULL && each.has_ended()) count_received(each.peer);
  return last;
}

void MpiRoot::pause(unsigned& polls) const {
  if (shares_cores_ || polls >= kPollsBeforeYielding)
    sched_yield();
  else
    ++polls;
}

}  // namespace evenkeel::internal
