// Thread ranks that exchange device memory. The right bytes arrive; nothing is read or overwritten too early,
// on a device that delays and reorders its work as far as it may.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "evenkeel/base/error.h"
#include "evenkeel/comm/recording.h"
#include "evenkeel/comm/thread/run_ranks.h"
#include "tests/routing/message.h"
#include "tests/support/fake_device.h"

namespace evenkeel {
namespace {

using testing::FakeDevice;
using testing::FakeStream;
using Values = std::vector<std::int64_t>;

constexpr std::uint64_t kSeeds = 20;

std::int64_t value_of(int from, int to, int round) {
  return from * 1000000 + to * 1000 + round;
}

// Whether `from` sends to `to` in this round. The seed decides, alike on both ranks.
bool is_sent(int from, int to, int round, std::uint64_t seed) {
  return std::mt19937_64(seed * 7919 + static_cast<std::uint64_t>(value_of(from, to, round)))() % 4 != 0;
}

// Rounds in which kernels write the bytes to send and check the received ones. All rounds use the same
// buffers, and the host never waits.
class Rounds {
 public:
  Rounds(Communicator& comm, FakeStream& stream, std::uint64_t seed)
      : comm_(comm), stream_(stream), seed_(seed), out_(ranks()), in_(ranks()) {}

  void run(int round) {
    const int me = comm_.rank().value();
    stream_.launch([this, me, round] {
      for (int to = 0; to < comm_.size(); ++to) out_[index(to)] = value_of(me, to, round);
    });
    std::vector<SendSlice> sends;
    std::vector<ReceiveSlice> receives;
    for (int peer = 0; peer < comm_.size(); ++peer) {
      if (is_sent(me, peer, round, seed_))
        sends.push_back({RankId(peer), std::as_bytes(std::span(&out_[index(peer)], 1))});
      if (is_sent(peer, me, round, seed_))
        receives.push_back({RankId(peer), std::as_writable_bytes(std::span(&in_[index(peer)], 1))});
    }
    comm_.send_receive(sends, receives, stream_, "exchange");
    stream_.launch([this, me, round] {
      for (int peer = 0; peer < comm_.size(); ++peer) {
        if (is_sent(peer, me, round, seed_) && in_[index(peer)] != value_of(peer, me, round)) ++wrong_;
        in_[index(peer)] = -1;
      }
    });
  }
  int wrong() const { return wrong_; }

 private:
  std::size_t ranks() const { return static_cast<std::size_t>(comm_.size()); }
  static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }

  Communicator& comm_;
  FakeStream& stream_;
  std::uint64_t seed_;
  Values out_;
  Values in_;
  int wrong_ = 0;
};

TEST(ThreadRanksOnADevice, MoveBytesInTheOrderOfEachOfTheirStreamsWithoutAHostThatWaits) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    FakeDevice device(seed);
    run_ranks(1 + static_cast<int>(seed % 5), [&](Communicator& comm) {
      FakeStream first(device);
      FakeStream second(device);
      Rounds one(comm, first, seed);
      Rounds two(comm, second, seed + 1000);
      for (int round = 0; round < 10; ++round) {
        one.run(round);
        if (seed % 2 == 0) two.run(round);
      }
      first.synchronize();
      second.synchronize();
      EXPECT_EQ(one.wrong() + two.wrong(), 0) << "seed " << seed;
    });
  }
}

TEST(ThreadRanksOnADevice, MayPostToTwoCommunicatorsAndStreamsInUnlikeOrders) {
  FakeDevice device(1);
  run_ranks(4, [&](Communicator& comm) {
    const std::unique_ptr<Communicator> weights = comm.split(0);
    std::int64_t token = 10 + comm.rank().value();
    std::int64_t weight = 20 + comm.rank().value();
    Values tokens(4);
    Values all_weights(4);
    FakeStream of_tokens(device);
    FakeStream of_weights(device);
    const auto gather = [](Communicator& on, std::int64_t& mine, Values& all, FakeStream& stream) {
      return on.all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)),
                           stream);
    };
    if (comm.rank().value() % 2 == 0) {
      gather(comm, token, tokens, of_tokens);
      gather(*weights, weight, all_weights, of_weights);
      of_weights.synchronize();
      of_tokens.synchronize();
    } else {
      gather(*weights, weight, all_weights, of_weights);
      gather(comm, token, tokens, of_tokens);
      of_tokens.synchronize();
      of_weights.synchronize();
    }
    EXPECT_EQ(tokens, (Values{10, 11, 12, 13}));
    EXPECT_EQ(all_weights, (Values{20, 21, 22, 23}));
  });
}

TEST(ThreadRanksOnADevice, ReduceInRankOrderOnAnyStream) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    FakeDevice device(seed);
    run_ranks(3, [&](Communicator& comm) {
      const int me = comm.rank().value();
      FakeStream first(device);
      FakeStream second(device);
      Values sums(2);
      std::vector<double> least(1);
      int wrong = 0;
      for (int round = 0; round < 8; ++round) {
        FakeStream& stream = round % 2 == 0 ? first : second;
        if (round > 0) stream.wait_for((round % 2 == 0 ? second : first).mark());
        stream.launch([&, round] {
          sums = {me + round, INT64_MAX};
          least = {1.5 * (round - me)};
        });
        comm.all_reduce(std::span(sums), Reduction::max, stream);
        comm.all_reduce(std::span(least), Reduction::min, stream);
        stream.launch([&, round] {
          wrong += sums == Values{2 + round, INT64_MAX} ? 0 : 1;
          wrong += least[0] == 1.5 * (round - 2) ? 0 : 1;
        });
      }
      first.synchronize();
      second.synchronize();
      EXPECT_EQ(wrong, 0) << "seed " << seed;
    });
  }
}

// A reduction's scratch stays with its stream until the stream has read the values.
TEST(ThreadRanksOnADevice, ReduceOnTwoStreamsAtATime) {
  for (std::uint64_t seed = 0; seed < 5 * kSeeds; ++seed) {
    FakeDevice device(seed);
    run_ranks(3, [&](Communicator& comm) {
      Values one{comm.rank().value()};
      Values two{100 + comm.rank().value()};
      FakeStream first(device);
      FakeStream second(device);
      comm.all_reduce(std::span(one), Reduction::sum, first);
      first.flush();
      comm.all_reduce(std::span(two), Reduction::sum, second);
      second.synchronize();
      first.synchronize();
      EXPECT_EQ(one[0], 3) << "seed " << seed;
      EXPECT_EQ(two[0], 303) << "seed " << seed;
    });
  }
}

TEST(ThreadRanksOnADevice, AreOrderedByABarrierWithoutAByteMoved) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    FakeDevice device(seed);
    Values shared(4, -1);
    run_ranks(4, [&](Communicator& comm) {
      RecordingCommunicator recorded(comm);
      const auto me = static_cast<std::size_t>(comm.rank().value());
      FakeStream stream(device);
      int wrong = 0;
      for (int round = 0; round < 6; ++round) {
        stream.launch([&shared, me, round] { shared[me] = round; });
        recorded.barrier(stream);
        stream.launch([&shared, &wrong, round] {
          for (std::int64_t value : shared) wrong += value == round ? 0 : 1;
        });
        recorded.barrier(stream);
      }
      stream.synchronize();
      EXPECT_EQ(wrong, 0) << "seed " << seed;
      EXPECT_EQ(recorded.total().bytes_sent, 0);
      EXPECT_EQ(recorded.total().calls, 12);
    });
  }
}

TEST(ThreadRanks, AreOrderedByABarrierOnTheCpu) {
  std::atomic<int> arrived{0};
  run_ranks(4, [&](Communicator& comm) {
    CpuStream stream;
    ++arrived;
    comm.barrier(stream).wait();
    EXPECT_EQ(arrived.load(), 4);
  });
}

TEST(ThreadRanksOnADevice, SayWhichRankIsNotOnADevice) {
  FakeDevice device(1);
  const std::string message = message_of<CommError>([&] {
    run_ranks(2, [&](Communicator& comm) {
      std::int64_t mine = 1;
      Values all(2);
      FakeStream on_device(device);
      CpuStream on_cpu;
      Stream& stream = comm.rank().value() == 0 ? static_cast<Stream&>(on_device) : on_cpu;
      comm.all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)), stream)
          .wait();
    });
  });
  EXPECT_NE(message.find("one a device stream, the other"), std::string::npos) << message;
}

TEST(ThreadRanksOnADevice, NameARankThatDoesNotAnswerWithinTheDeadline) {
  FakeDevice device(1);
  const std::string message = message_of<CommError>([&] {
    run_ranks(3,
              [&](Communicator& comm) {
                FakeStream stream(device);
                if (comm.rank().value() == 2) {
                  CpuStream cpu;
                  while (true) comm.throw_if_aborted("compute");
                }
                comm.barrier(stream, "dispatch");
                stream.flush();
              },
              {.deadline_seconds = 0.2});
  });
  EXPECT_NE(message.find("rank 2 did not answer in dispatch within 0.2 s"), std::string::npos) << message;
}

TEST(ThreadRanksOnADevice, AllStopWhereADeviceFails) {
  FakeDevice device(1);
  std::atomic<int> stopped{0};
  const std::string message = message_of<std::runtime_error>([&] {
    run_ranks(4, [&](Communicator& comm) {
      Values mine(1);
      Values all(4);
      FakeStream stream(device);
      if (comm.rank().value() == 1) stream.fail_at_copy(6);
      try {
        for (int round = 0; round < 10; ++round)
          comm.all_gather(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)), stream);
        stream.synchronize();
      } catch (const CommError& error) {
        EXPECT_EQ(error.peer(), 1);
        ++stopped;
        throw;
      }
    });
  });
  EXPECT_EQ(message, "the copy engine is on fire");
  EXPECT_EQ(stopped.load(), 3);
}

TEST(ThreadRanksOnADevice, AreReadNoMoreOnceTheyHaveStopped) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    FakeDevice device(seed);
    std::atomic<bool> taken{false};
    std::atomic<bool> overwritten{false};
    run_ranks(2, [&](Communicator& comm) {
      Values out{42};
      Values in{0};
      FakeStream stream(device);
      if (comm.rank().value() == 0) {
        const SendSlice send{RankId(1), std::as_bytes(std::span(out))};
        const Event sent = comm.send_receive({&send, 1}, {}, stream, "dispatch");
        while (!taken) comm.throw_if_aborted("compute");
        comm.abort("enough");
        out[0] = -1;  // written by the host at once: after abort() nobody reads the buffer
        overwritten = true;
        EXPECT_THROW(sent.wait(), CommError);
      } else {
        const ReceiveSlice receive{RankId(0), std::as_writable_bytes(std::span(in))};
        comm.send_receive({}, {&receive, 1}, stream, "dispatch");
        stream.flush();
        taken = true;
        while (!overwritten) continue;
        stream.synchronize();
        EXPECT_EQ(in[0], 42) << "seed " << seed;
      }
    });
  }
}

}  // namespace
}  // namespace evenkeel
