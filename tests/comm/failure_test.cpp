// How ranks stop: if a rank throws, falls silent, leaves or disagrees, all others end soon with an error that
// names the cause, and nobody reads its buffers afterwards.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <sstream>
#include <thread>

#include "evenkeel/base/error.h"
#include "evenkeel/comm/faulty.h"
#include "evenkeel/device/cpu/stream.h"
#include "tests/comm/transport.h"

namespace evenkeel {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

constexpr double short_deadline = 0.3;
constexpr double usual_deadline = 30;
// The seconds that count as "soon" on a shared machine.
constexpr double soon = 5;

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

struct Ending {
  int peer = -2;  // -2: no CommError was thrown on the rank
  std::string operation;
  std::string what;
};

// Runs the body on all ranks and returns the CommError caught on each rank; each is rethrown.
std::vector<Ending> endings_of(int ranks, double deadline_seconds,
                               const std::function<void(Communicator&)>& body,
                               std::string* thrown = nullptr) {
  const RankNotes result =
      run_and_collect_notes(ranks, deadline_seconds, [&](Communicator& comm, std::string& note) {
        try {
          body(comm);
        } catch (const CommError& error) {
          note = std::to_string(error.peer()) + "\n" + error.operation() + "\n" + error.what();
          throw;
        }
      });
  if (thrown != nullptr) *thrown = result.thrown;
  std::vector<Ending> endings;
  for (const std::string& note : result.notes) {
    std::istringstream lines(note);
    Ending& ending = endings.emplace_back();
    std::string peer;
    if (!std::getline(lines, peer)) continue;
    ending.peer = std::stoi(peer);
    std::getline(lines, ending.operation);
    std::getline(lines, ending.what);
  }
  return endings;
}

// Calls every operation once.
void all_operations(Communicator& comm) {
  CpuStream stream;
  const std::int64_t mine = comm.rank().value();
  std::vector<std::int64_t> all(static_cast<std::size_t>(comm.size()));
  comm.all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)), stream,
                  "counts")
      .wait();
  std::vector<SendSlice> sends;
  std::vector<ReceiveSlice> receives;
  std::vector<std::int64_t> in(all.size());
  for (int peer = 0; peer < comm.size(); ++peer) {
    sends.push_back({RankId(peer), std::as_bytes(std::span(&mine, 1))});
    receives.push_back(
        {RankId(peer), std::as_writable_bytes(std::span(&in[static_cast<std::size_t>(peer)], 1))});
  }
  comm.send_receive(sends, receives, stream, "dispatch").wait();
  std::vector<double> values{1, 2};
  comm.all_reduce(std::span(values), Reduction::sum, stream, "sum").wait();
  std::vector<std::int64_t> integers{1, 2};
  comm.all_reduce(std::span(integers), Reduction::max, stream, "most").wait();
  const std::unique_ptr<Communicator> part = comm.split(comm.rank().value() % 2);
  part->all_reduce(std::span(values), Reduction::sum, stream, "part sum").wait();
  comm.send_receive(sends, receives, stream, "combine").wait();
}

// Calls all operations with a fault in one of them. Ranks that do not wait for the faulty rank get the error
// at their next call.
auto all_with(const Fault& fault, int faulty_rank) {
  return [=](Communicator& comm) {
    Fault mine = fault;
    if (comm.rank() != RankId(faulty_rank)) mine.operation = "never";
    FaultyCommunicator faulty(comm, mine);
    all_operations(faulty);
    for (;;) {
      faulty.throw_if_aborted("later");
      std::this_thread::sleep_for(milliseconds(1));
    }
  };
}

const char* const operation_names[] = {"counts", "dispatch", "sum", "most", "split", "part sum", "combine"};

TEST(AThrowingRank, EndsAllOthersSoonWithItsMessageWhateverItWasDoing) {
  NEEDS_RANKS(2);
  for (int ranks : {2, 5, 8}) {
    if (ranks > most_ranks()) continue;
    for (int failing = 0; failing < ranks; ++failing) {
      for (const char* name : operation_names) {
        const auto start = std::chrono::steady_clock::now();
        std::string thrown;
        const std::vector<Ending> endings =
            endings_of(ranks, usual_deadline, all_with({.operation = name}, failing), &thrown);
        const std::string message = std::string("injected failure at ") + name + " number 1";
        EXPECT_EQ(thrown, message);
        EXPECT_LT(seconds_since(start), soon);
        for (int rank = 0; rank < ranks; ++rank) {
          if (rank == failing) continue;
          const Ending& ending = endings[static_cast<std::size_t>(rank)];
          EXPECT_EQ(ending.peer, failing) << name << " on rank " << rank;
          EXPECT_EQ(ending.what, "rank " + std::to_string(failing) + " failed: " + message);
        }
      }
    }
  }
}

TEST(AThrowingRank, EndsThoseThatAreBlockedInASplitCommunicatorItIsNoMemberOf) {
  NEEDS_RANKS(3);
  const auto body = [&](Communicator& comm) {
    const std::unique_ptr<Communicator> part = comm.split(comm.rank().value() == 2 ? 1 : 0);
    std::byte begun{}, others[2], value{};
    CpuStream stream, unwatched;  // not waited for: a wait for "begun" could already report the fault
    if (comm.rank() == RankId(2)) {
      const ReceiveSlice both[] = {{RankId(0), {&others[0], 1}}, {RankId(1), {&others[1], 1}}};
      comm.send_receive({}, both, stream, "begun").wait();
      throw std::runtime_error("out of tokens");
    }
    const SendSlice send{RankId(2), {&begun, 1}};
    comm.send_receive({&send, 1}, {}, unwatched, "begun");
    while (comm.rank() == RankId(1)) {
      part->throw_if_aborted("compute");
      std::this_thread::sleep_for(milliseconds(1));
    }
    const ReceiveSlice receive{RankId(1), {&value, 1}};
    part->send_receive({}, {&receive, 1}, stream, "dispatch").wait();
  };
  const std::vector<Ending> endings = endings_of(3, usual_deadline, body);
  EXPECT_EQ(endings[0].what, "rank 2 failed: out of tokens");
  EXPECT_EQ(endings[0].operation, "dispatch");
  EXPECT_EQ(endings[1].what, "rank 2 failed: out of tokens");
  EXPECT_EQ(endings[1].operation, "compute");
}

TEST(ASilentRank, IsNamedOnEveryRankOnceTheDeadlineHasPassed) {
  NEEDS_RANKS(8);
  constexpr int ranks = 8;
  for (const char* name : operation_names) {
    const auto start = std::chrono::steady_clock::now();
    std::string thrown;
    const std::vector<Ending> endings = endings_of(
        ranks, short_deadline, all_with({.kind = Fault::Kind::silence, .operation = name}, 3), &thrown);
    EXPECT_GE(seconds_since(start), short_deadline);
    EXPECT_LT(seconds_since(start), short_deadline + soon);
    for (const Ending& ending : endings) {
      EXPECT_EQ(ending.peer, 3) << ending.what;
      EXPECT_EQ(ending.what, thrown);
    }
  }
}

TEST(ASilentRank, IsDescribedByWhatItWasToAnswerAndWhatItDidLast) {
  NEEDS_RANKS(8);
  const auto silent_at = [](const char* name) {
    std::string thrown;
    endings_of(8, short_deadline, all_with({.kind = Fault::Kind::silence, .operation = name}, 3), &thrown);
    return thrown;
  };
  EXPECT_EQ(silent_at("counts"),
            "rank 3 did not answer in counts within 0.3 s; ranks 0-2 and 4-7 have stopped. Rank 3's last "
            "message: none.");
  EXPECT_THAT(
      silent_at("sum"),
      MatchesRegex("rank 3 did not answer in sum within 0.3 s; ranks 0-2 and 4-7 have stopped. Rank 3's "
                   "last message: dispatch, [0-9.]+ s ago, its operation number 2."));
}

// Waits for a byte from rank `from`, which may never send it.
void await(Communicator& comm, int from, const char* name) {
  std::byte value{};
  CpuStream stream;
  const ReceiveSlice receive{RankId(from), {&value, 1}};
  comm.send_receive({}, {&receive, 1}, stream, name).wait();
}

TEST(ASilentRank, IsFoundBehindAChainOfRanksThatWaitForEachOther) {
  NEEDS_RANKS(4);
  const std::vector<Ending> endings = endings_of(4, short_deadline, [](Communicator& comm) {
    const int me = comm.rank().value();
    if (me < 3) await(comm, me + 1, "chained");
    while (me == 3) {
      comm.throw_if_aborted("asleep");
      std::this_thread::sleep_for(milliseconds(1));
    }
  });
  for (const Ending& ending : endings) EXPECT_EQ(ending.peer, 3) << ending.what;
}

TEST(RanksThatWaitForEachOther, AreToldThatTheyWaitInACircle) {
  NEEDS_RANKS(3);
  const std::vector<Ending> endings = endings_of(
      3, short_deadline, [](Communicator& comm) { await(comm, (comm.rank().value() + 1) % 3, "round"); });
  for (const Ending& ending : endings) {
    EXPECT_THAT(
        ending.what,
        HasSubstr("did not answer in round within 0.3 s, while ranks wait for each other in a circle"));
  }
}

TEST(ARankThatReturns, EndsThoseThatAwaitItWithoutADeadline) {
  NEEDS_RANKS(3);
  const auto start = std::chrono::steady_clock::now();
  const std::vector<Ending> endings = endings_of(3, usual_deadline, [](Communicator& comm) {
    if (comm.rank() != RankId(1)) await(comm, 1, "farewell");
  });
  EXPECT_LT(seconds_since(start), soon);
  for (std::size_t rank : {0U, 2U}) {
    EXPECT_EQ(endings[rank].peer, 1);
    EXPECT_EQ(endings[rank].what,
              "rank 1 ended before it answered in farewell; ranks 0 and 2 have stopped. Rank 1's last "
              "message: none.");
  }
}

TEST(ARankThatReturns, LeavesThoseAloneThatNeedNothingFromIt) {
  run_on(8, [](Communicator& comm) {
    all_operations(comm);
    if (comm.rank().value() < 2) return;
    const std::vector<double> mine{1};
    CpuStream stream;
    std::byte value{};
    const RankId peer(comm.rank().value() ^ 1);
    std::this_thread::sleep_for(milliseconds(5 * comm.rank().value()));
    const SendSlice send{peer, {&value, 1}};
    std::byte in{};
    const ReceiveSlice receive{peer, {&in, 1}};
    comm.send_receive({&send, 1}, {&receive, 1}, stream, "pairs").wait();
  });
}

// The final wait for all ranks lasts longer than the deadline.
TEST(ARankThatReturns, MayBeALittleLaterThanTheDeadline) {
  run_on(
      3,
      [](Communicator& comm) {
        if (comm.rank() == RankId(1)) std::this_thread::sleep_for(milliseconds(800));
      },
      short_deadline);
}

TEST(AMessageThatNobodyReceives, IsAnErrorAtTheEnd) {
  NEEDS_RANKS(2);
  std::string thrown;
  endings_of(
      2, usual_deadline,
      [](Communicator& comm) {
        const std::byte bytes[8] = {};
        CpuStream stream;
        const SendSlice send{RankId(1), bytes};
        if (comm.rank() == RankId(0)) comm.send_receive({&send, 1}, {}, stream, "lost").wait();
      },
      &thrown);
  EXPECT_THAT(thrown, MatchesRegex("rank 0 sent 8 bytes that rank 1 never received|"
                                   "rank 1 ended before it answered in lost;.*"));
}

TEST(AnOperationOfAStreamThatOutlivesItsRanks, IsLeftUnfinished) {
  NEEDS_RANKS(2);
  std::string thrown;
  std::byte value{};
  CpuStream streams[2];
  endings_of(
      2, usual_deadline,
      [&](Communicator& comm) {
        const ReceiveSlice receive{RankId(1 - comm.rank().value()), {&value, 1}};
        comm.send_receive({}, {&receive, 1}, streams[comm.rank().offset()], "outlived");
      },
      &thrown);
  EXPECT_THAT(thrown, MatchesRegex("rank [01] (ended, and )?left unfinished: outlived"));
}

TEST(PeersThatDisagreeOnASize, BothLearnBothSizes) {
  NEEDS_RANKS(3);
  for (const bool sender_first : {false, true}) {
    const std::vector<Ending> endings = endings_of(3, usual_deadline, [&](Communicator& comm) {
      std::vector<std::byte> bytes(100);
      CpuStream stream;
      const SendSlice send{RankId(1), bytes};
      const ReceiveSlice receive{RankId(0), std::span(bytes).first(96)};
      if ((comm.rank() == RankId(1)) == sender_first) std::this_thread::sleep_for(milliseconds(20));
      if (comm.rank() == RankId(0)) comm.send_receive({&send, 1}, {}, stream, "dispatch").wait();
      if (comm.rank() == RankId(1)) comm.send_receive({}, {&receive, 1}, stream, "combine").wait();
      if (comm.rank() == RankId(2)) await(comm, 0, "other");
      comm.barrier(stream, "later").wait();
    });
    for (const Ending& ending : endings) {
      EXPECT_THAT(ending.what,
                  MatchesRegex("rank 0 sends 100 bytes( in dispatch)?, where rank 1 expects 96 bytes "
                               "in combine"));
    }
    EXPECT_EQ(endings[0].peer, 1);
    EXPECT_EQ(endings[1].peer, 0);
    EXPECT_EQ(endings[2].peer, 0);
  }
}

TEST(RanksThatGatherUnlikeSizes, AllStop) {
  NEEDS_RANKS(4);
  const std::vector<Ending> endings = endings_of(4, usual_deadline, [](Communicator& comm) {
    const std::vector<std::byte> mine(comm.rank() == RankId(2) ? 9 : 8);
    std::vector<std::byte> all(4 * mine.size());
    CpuStream stream;
    comm.all_gather(mine, all, stream, "counts").wait();
  });
  for (const Ending& ending : endings) {
    EXPECT_THAT(ending.what, HasSubstr("9 bytes"));
    EXPECT_THAT(ending.what, HasSubstr("8 bytes"));
  }
}

TEST(Abort, StopsEveryRankAndEveryLaterCallWithItsFirstCause) {
  NEEDS_RANKS(4);
  const std::vector<Ending> endings = endings_of(4, usual_deadline, [](Communicator& comm) {
    if (comm.rank() == RankId(1)) {
      comm.abort("the router gave NaN");
      comm.abort("a second thought");
    }
    EXPECT_THROW(all_operations(comm), CommError);
    EXPECT_THROW(comm.split(0), CommError);
    EXPECT_THROW(comm.throw_if_aborted("later"), CommError);
    await(comm, 0, "last");
  });
  for (const Ending& ending : endings) {
    EXPECT_EQ(ending.peer, 1);
    EXPECT_EQ(ending.operation, "last");
    EXPECT_EQ(ending.what, "rank 1 aborted: the router gave NaN");
  }
}

TEST(AnUnfinishedOperation, EndsTheOthersWhenItsRankGoesOn) {
  NEEDS_RANKS(2);
  std::string thrown;
  endings_of(
      2, usual_deadline,
      [](Communicator& comm) {
        if (comm.rank() == RankId(1)) return await(comm, 0, "abandoned");
        std::byte value{};
        CpuStream stream;
        const ReceiveSlice receive{RankId(1), {&value, 1}};
        comm.send_receive({}, {&receive, 1}, stream, "abandoned");
      },
      &thrown);
  EXPECT_THAT(thrown, MatchesRegex("rank 0 (ended, and )?left unfinished: abandoned"));
}

TEST(AnUnfinishedOperation, ThatPeersNeedNoLongerMayBeDropped) {
  run_on(2, [](Communicator& comm) {
    const std::byte value{};
    const SendSlice send{RankId(1 - comm.rank().value()), {&value, 1}};
    if (comm.rank() == RankId(1)) {
      await(comm, 0, "dropped");
      CpuStream stream;
      comm.send_receive({&send, 1}, {}, stream, "received").wait();
      return;
    }
    CpuStream stream;
    comm.send_receive({&send, 1}, {}, stream, "dropped");
    await(comm, 1, "received");
  });
}

TEST(AFailedEvent, ThrowsEachTimeItIsAwaited) {
  run_on(2, [](Communicator& comm) {
    if (comm.rank() == RankId(1)) {
      comm.abort("enough");
      return;
    }
    std::byte value{};
    CpuStream stream;
    try {
      const ReceiveSlice receive{RankId(1), {&value, 1}};
      const Event first = comm.send_receive({}, {&receive, 1}, stream, "first");
      const Event second = comm.send_receive({}, {&receive, 1}, stream, "second");
      EXPECT_THROW(first.wait(), CommError);
      EXPECT_THROW(second.wait(), CommError);
      EXPECT_THROW(first.wait(), CommError);
      EXPECT_FALSE(second.complete());
    } catch (const CommError&) {  // rank 1 aborted before the operations were posted
    }
  });
}

}  // namespace
}  // namespace evenkeel
