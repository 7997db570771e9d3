// How thread ranks stop: a rank that throws, falls silent, leaves or disagrees ends all others soon, with the
// cause, and nobody reads its bytes afterwards.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <thread>

#include "evenkeel/base/error.h"
#include "evenkeel/comm/faulty.h"
#include "evenkeel/comm/thread/run_ranks.h"
#include "evenkeel/device/cpu/stream.h"

namespace evenkeel {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

constexpr double short_deadline = 0.3;
constexpr ThreadOptions kShort{.deadline_seconds = short_deadline};
// The seconds that are "soon" on a machine that others use as well.
constexpr double soon = 5;

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

struct Ending {
  int peer = -2;  // -2: the rank met no CommError
  std::string operation;
  std::string what;
};

// Runs the body on all ranks and notes the CommError that each met, which it throws on.
std::vector<Ending> endings_of(int ranks, const ThreadOptions& options,
                               const std::function<void(Communicator&)>& body,
                               std::string* thrown = nullptr) {
  std::vector<Ending> endings(static_cast<std::size_t>(ranks));
  const auto noting = [&](Communicator& comm) {
    try {
      body(comm);
    } catch (const CommError& error) {
      endings[comm.rank().offset()] = {error.peer(), error.operation(), error.what()};
      throw;
    }
  };
  try {
    run_ranks(ranks, noting, options);
  } catch (const std::exception& error) {
    if (thrown != nullptr) *thrown = error.what();
  }
  return endings;
}

// Every operation there is, once each.
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

// All operations with a fault in one of them; ranks that were not waiting for its rank meet the error at
// their next call.
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
  for (int ranks : {2, 5, 8}) {
    for (int failing = 0; failing < ranks; ++failing) {
      for (const char* name : operation_names) {
        const auto start = std::chrono::steady_clock::now();
        std::string thrown;
        const std::vector<Ending> endings =
            endings_of(ranks, {}, all_with({.operation = name}, failing), &thrown);
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

TEST(AThrowingRank, IsReportedWithItsOwnExceptionNotWithThoseItCaused) {
  struct Odd {
    int value;
  };
  try {
    run_ranks(4, [](Communicator& comm) {
      if (comm.rank() == RankId(2)) throw Odd{17};
      all_operations(comm);
    });
    FAIL() << "threw nothing";
  } catch (const Odd& odd) {
    EXPECT_EQ(odd.value, 17);
  }
}

TEST(AThrowingRank, EndsThoseThatAreBlockedInASplitCommunicatorItIsNoMemberOf) {
  std::atomic<int> have_split = 0;
  const auto body = [&](Communicator& comm) {
    const std::unique_ptr<Communicator> part = comm.split(comm.rank().value() == 2 ? 1 : 0);
    ++have_split;
    while (have_split < 3) std::this_thread::sleep_for(milliseconds(1));
    if (comm.rank() == RankId(2)) throw std::runtime_error("out of tokens");
    while (comm.rank() == RankId(1)) {
      part->throw_if_aborted("compute");
      std::this_thread::sleep_for(milliseconds(1));
    }
    std::byte value{};
    CpuStream stream;
    const ReceiveSlice receive{RankId(1), {&value, 1}};
    part->send_receive({}, {&receive, 1}, stream, "dispatch").wait();
  };
  const std::vector<Ending> endings = endings_of(3, {}, body);
  EXPECT_EQ(endings[0].what, "rank 2 failed: out of tokens");
  EXPECT_EQ(endings[0].operation, "dispatch");
  EXPECT_EQ(endings[1].what, "rank 2 failed: out of tokens");
  EXPECT_EQ(endings[1].operation, "compute");
}

TEST(ASilentRank, IsNamedOnEveryRankOnceTheDeadlineHasPassed) {
  constexpr int ranks = 8;
  for (const char* name : operation_names) {
    const auto start = std::chrono::steady_clock::now();
    std::string thrown;
    const std::vector<Ending> endings =
        endings_of(ranks, kShort, all_with({.kind = Fault::Kind::silence, .operation = name}, 3), &thrown);
    EXPECT_GE(seconds_since(start), short_deadline);
    EXPECT_LT(seconds_since(start), short_deadline + soon);
    for (const Ending& ending : endings) {
      EXPECT_EQ(ending.peer, 3) << ending.what;
      EXPECT_EQ(ending.what, thrown);
    }
  }
}

TEST(ASilentRank, IsDescribedByWhatItWasToAnswerAndWhatItDidLast) {
  const auto silent_at = [](const char* name) {
    std::string thrown;
    endings_of(8, kShort, all_with({.kind = Fault::Kind::silence, .operation = name}, 3), &thrown);
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

// Receives a byte from `from`, which need not send it.
void await(Communicator& comm, int from, const char* name) {
  std::byte value{};
  CpuStream stream;
  const ReceiveSlice receive{RankId(from), {&value, 1}};
  comm.send_receive({}, {&receive, 1}, stream, name).wait();
}

TEST(ASilentRank, IsFoundBehindAChainOfRanksThatWaitForEachOther) {
  const std::vector<Ending> endings = endings_of(4, kShort, [](Communicator& comm) {
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
  const std::vector<Ending> endings =
      endings_of(3, kShort, [](Communicator& comm) { await(comm, (comm.rank().value() + 1) % 3, "round"); });
  for (const Ending& ending : endings) {
    EXPECT_THAT(
        ending.what,
        HasSubstr("did not answer in round within 0.3 s, while ranks wait for each other in a circle"));
  }
}

TEST(ARankThatReturns, EndsThoseThatAwaitItWithoutADeadline) {
  const auto start = std::chrono::steady_clock::now();
  const std::vector<Ending> endings = endings_of(3, {}, [](Communicator& comm) {
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
  run_ranks(8, [](Communicator& comm) {
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

TEST(PeersThatDisagreeOnASize, BothLearnBothSizes) {
  for (const bool sender_first : {false, true}) {
    const std::vector<Ending> endings = endings_of(3, {}, [&](Communicator& comm) {
      std::vector<std::byte> bytes(100);
      CpuStream stream;
      const SendSlice send{RankId(1), bytes};
      const ReceiveSlice receive{RankId(0), std::span(bytes).first(96)};
      if ((comm.rank() == RankId(1)) == sender_first) std::this_thread::sleep_for(milliseconds(20));
      if (comm.rank() == RankId(0)) comm.send_receive({&send, 1}, {}, stream, "dispatch").wait();
      if (comm.rank() == RankId(1)) comm.send_receive({}, {&receive, 1}, stream, "combine").wait();
      if (comm.rank() == RankId(2)) await(comm, 0, "other");
    });
    for (const Ending& ending : endings) {
      EXPECT_EQ(ending.what, "rank 0 sends 100 bytes in dispatch, where rank 1 expects 96 bytes in combine");
    }
    EXPECT_EQ(endings[0].peer, 1);
    EXPECT_EQ(endings[1].peer, 0);
    EXPECT_EQ(endings[2].peer, 0);
  }
}

TEST(RanksThatGatherUnlikeSizes, AllStop) {
  const std::vector<Ending> endings = endings_of(4, {}, [](Communicator& comm) {
    const std::vector<std::byte> mine(comm.rank() == RankId(2) ? 9 : 8);
    std::vector<std::byte> all(4 * mine.size());
    CpuStream stream;
    comm.all_gather(mine, all, stream, "counts").wait();
  });
  for (const Ending& ending : endings) {
    EXPECT_THAT(ending.what, HasSubstr("9 bytes in counts"));
    EXPECT_THAT(ending.what, HasSubstr("8 bytes in counts"));
  }
}

TEST(Abort, StopsEveryRankAndEveryLaterCallWithItsFirstCause) {
  const std::vector<Ending> endings = endings_of(4, {}, [](Communicator& comm) {
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
  std::string thrown;
  const std::vector<Ending> endings = endings_of(
      2, {},
      [](Communicator& comm) {
        if (comm.rank() == RankId(1)) return await(comm, 0, "abandoned");
        const std::byte value{};
        CpuStream stream;
        const SendSlice sends[] = {{RankId(0), {&value, 1}}, {RankId(1), {&value, 1}}};
        comm.send_receive(sends, {}, stream, "abandoned");
      },
      &thrown);
  EXPECT_EQ(thrown, "rank 0 ended, and left unfinished: abandoned");
}

TEST(AnUnfinishedOperation, ThatPeersNeedNoLongerMayBeDropped) {
  std::atomic<bool> received = false;
  run_ranks(2, [&](Communicator& comm) {
    if (comm.rank() == RankId(1)) {
      await(comm, 0, "dropped");
      received = true;
      return;
    }
    const std::byte value{};
    CpuStream stream;
    const SendSlice send{RankId(1), {&value, 1}};
    comm.send_receive({&send, 1}, {}, stream, "dropped");
    while (!received) std::this_thread::sleep_for(milliseconds(1));
  });
}

TEST(AFailedEvent, ThrowsEachTimeItIsAwaited) {
  run_ranks(2, [](Communicator& comm) {
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
    } catch (const CommError&) {  // the abort came before the posting
    }
  });
}

// Pages that end the program when they are read after they are gone.
class Pages {
 public:
  explicit Pages(std::size_t size)
      : bytes_(static_cast<std::byte*>(
                   mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)),
               size) {
    std::memset(bytes_.data(), 1, size);
  }
  Pages(const Pages&) = delete;
  ~Pages() { munmap(bytes_.data(), bytes_.size()); }
  std::span<std::byte> bytes() const { return bytes_; }

 private:
  std::span<std::byte> bytes_;
};

constexpr std::size_t copy_bytes = 32 << 20;  // long enough for others to act while it is copied

using Interference = std::function<void(Communicator&, CpuStream&, const Event&)>;

// Rank 1 copies from rank 0 while `interfere` runs on rank 0, or while rank 2 fails; whoever disturbs it does
// so `delay` after the copy may have begun. Returns whether the copy was not over by then.
bool disturb_a_copy(const Interference& interfere, bool third_fails, std::chrono::microseconds delay) {
  using Clock = std::chrono::steady_clock;
  std::atomic<bool> copying = false;
  Clock::time_point disturbed, copied;
  const auto await_the_moment = [&] {
    while (!copying) std::this_thread::yield();
    std::this_thread::sleep_for(delay);
    disturbed = Clock::now();
  };
  const auto body = [&](Communicator& comm) {
    if (comm.rank() == RankId(0)) {
      const Pages source(copy_bytes);
      CpuStream stream;
      const SendSlice send{RankId(1), source.bytes()};
      const Event sent = comm.send_receive({&send, 1}, {}, stream, "large");
      if (!third_fails) await_the_moment();
      interfere(comm, stream, sent);
    } else if (comm.rank() == RankId(1)) {
      std::vector<std::byte> in(copy_bytes);
      CpuStream stream;
      const ReceiveSlice receive{RankId(0), in};
      const Event received = comm.send_receive({}, {&receive, 1}, stream, "large");
      copying = true;
      try {
        received.wait();
      } catch (...) {
        copied = Clock::now();
        throw;
      }
      copied = Clock::now();
      EXPECT_EQ(std::memchr(in.data(), 0, in.size()), nullptr)
          << "an incomplete copy passed for a complete one";
    } else if (third_fails) {
      await_the_moment();
      throw std::runtime_error("third");
    }
  };
  try {
    run_ranks(3, body);
  } catch (const std::exception&) {
  }
  return disturbed < copied;
}

// With ever longer waits, so that some fall before the copy, some into it and some after.
void race_with_a_copy(const Interference& interfere, bool third_fails) {
  int in_time = 0;
  for (int round = 0; round < 12 || (in_time == 0 && round < 200); ++round)
    if (disturb_a_copy(interfere, third_fails, std::chrono::microseconds(400 * (round % 12)))) ++in_time;
  EXPECT_GT(in_time, 0);
}

TEST(ACopyUnderWay, IsOverBeforeAbortReturns) {
  race_with_a_copy([](Communicator& comm, CpuStream&, const Event&) { comm.abort("early"); }, false);
}

TEST(ACopyUnderWay, IsOverBeforeAFailingWaitThrows) {
  race_with_a_copy([](Communicator&, CpuStream&, const Event& sent) { sent.wait(); }, true);
}

TEST(ACopyUnderWay, IsOverBeforeAStreamEndsInUnwinding) {
  race_with_a_copy([](Communicator&, CpuStream&, const Event&) { throw std::runtime_error("unwound"); },
                   false);
}

TEST(ACopyUnderWay, IsOverBeforeAnyFailingCallThrows) {
  race_with_a_copy(
      [](Communicator& comm, CpuStream&, const Event&) {
        for (;;) {
          comm.throw_if_aborted("poll");
          std::this_thread::sleep_for(std::chrono::microseconds(50));
        }
      },
      true);
}

TEST(RunRanks, RefusesWhatItCannotStart) {
  const auto nothing = [](Communicator&) {};
  EXPECT_THROW(run_ranks(0, nothing), InvalidArgument);
  EXPECT_THROW(run_ranks(5000, nothing), InvalidArgument);
  EXPECT_THROW(run_ranks(1, nothing, {.deadline_seconds = 0}), InvalidArgument);
  EXPECT_THROW(run_ranks(1, nothing, {.deadline_seconds = std::nan("")}), InvalidArgument);
}

}  // namespace
}  // namespace evenkeel
