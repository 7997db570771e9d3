// Messages between ranks arrive complete and in order, whichever ranks exchange them.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <random>
#include <thread>

#include "evenkeel/base/error.h"
#include "evenkeel/device/cpu/stream.h"
#include "tests/comm/transport.h"
#include "tests/routing/message.h"

namespace evenkeel {
namespace {

using Bytes = std::vector<std::byte>;

// Bytes that are unique to this message.
Bytes payload(int from, int to, int number, std::size_t size) {
  std::mt19937_64 random(static_cast<std::uint64_t>((from * 1000 + to) * 100000 + number));
  Bytes bytes(size);
  for (std::byte& each : bytes) each = static_cast<std::byte>(random());
  return bytes;
}

struct PlannedMessage {
  int from;
  int to;
  std::size_t size;
};

// The messages of one step; every rank draws the same ones. A pair of ranks may have several messages or
// none.
std::vector<PlannedMessage> random_step(int ranks, std::mt19937_64& random) {
  std::uniform_int_distribution<int> any_rank(0, ranks - 1);
  std::uniform_int_distribution<int> count(0, 3 * ranks);
  std::uniform_int_distribution<int> exponent(0, 15);
  std::vector<PlannedMessage> step(static_cast<std::size_t>(count(random)));
  for (PlannedMessage& message : step) {
    std::uniform_int_distribution<std::size_t> size(0, std::size_t{1} << exponent(random));
    message = {any_rank(random), any_rank(random), size(random)};
  }
  return step;
}

// One rank's posted step: its buffers, and the expected final contents of the receive buffers.
struct PostedStep {
  std::vector<Bytes> sent;
  std::vector<Bytes> received;
  std::vector<Bytes> expected;
  Event event;
};

PostedStep post_step(Communicator& comm, Stream& stream, const std::vector<PlannedMessage>& step,
                     int number) {
  const int me = comm.rank().value();
  PostedStep posted;
  std::vector<SendSlice> sends;
  std::vector<ReceiveSlice> receives;
  posted.sent.reserve(step.size());
  posted.received.reserve(step.size());
  for (std::size_t i = 0; i < step.size(); ++i) {
    const PlannedMessage& message = step[i];
    const Bytes bytes = payload(message.from, message.to, number * 1000 + static_cast<int>(i), message.size);
    if (message.from == me) {
      posted.sent.push_back(bytes);
      sends.push_back({RankId(message.to), posted.sent.back()});
    }
    if (message.to == me) {
      posted.received.emplace_back(message.size);
      posted.expected.push_back(bytes);
      receives.push_back({RankId(message.from), posted.received.back()});
    }
  }
  posted.event = comm.send_receive(sends, receives, stream, "step");
  return posted;
}

TEST(SendReceive, DeliversEveryRandomGraphOfMessages) {
  for (int ranks = 1; ranks <= std::min(16, most_ranks()); ++ranks) {
    const auto seed = static_cast<std::uint64_t>(7000 + ranks);
    run_on(ranks, [&](Communicator& comm) {
      std::mt19937_64 random(seed);
      CpuStream stream;
      for (int number = 0; number < 12; ++number) {
        PostedStep step = post_step(comm, stream, random_step(ranks, random), number);
        step.event.wait();
        EXPECT_EQ(step.received, step.expected) << "seed " << seed << ", step " << number;
      }
    });
  }
}

TEST(SendReceive, DeliversStepsThatAreAllPostedBeforeAnyIsAwaited) {
  constexpr int ranks = 5;
  run_on(ranks, [&](Communicator& comm) {
    std::mt19937_64 random(11);
    std::vector<PostedStep> steps;
    CpuStream stream;
    for (int number = 0; number < 40; ++number) {
      steps.push_back(post_step(comm, stream, random_step(ranks, random), number));
    }
    stream.synchronize();
    for (const PostedStep& step : steps) {
      EXPECT_TRUE(step.event.complete());
      EXPECT_EQ(step.received, step.expected);
    }
  });
}

TEST(SendReceive, SurvivesThousandsOfStepsWithRandomDelays) {
  constexpr int ranks = 6;
  run_on(ranks, [&](Communicator& comm) {
    std::mt19937_64 shared(23);
    std::mt19937_64 own(static_cast<std::uint64_t>(comm.rank().value()));
    std::uniform_int_distribution<int> delay(0, 400);
    CpuStream stream;
    for (int number = 0; number < 2000; ++number) {
      std::vector<PlannedMessage> graph = random_step(ranks, shared);
      for (PlannedMessage& message : graph) message.size %= 200;
      if (const int draw = delay(own); draw < 20)
        std::this_thread::sleep_for(std::chrono::microseconds(draw * 10));
      PostedStep step = post_step(comm, stream, graph, number);
      step.event.wait();
      ASSERT_EQ(step.received, step.expected) << "step " << number;
    }
  });
}

TEST(SendReceive, MatchesMessagesOfAPairInIssueOrderEvenWhenReceivesWaitInAnother) {
  run_on(2, [](Communicator& comm) {
    constexpr int count = 6;
    int values[count] = {};
    CpuStream streams[count];
    Event events[count];
    if (comm.rank() == RankId(0)) {
      for (int i = 0; i < count; ++i) {
        values[i] = 100 + i;
        const SendSlice send{RankId(1), std::as_bytes(std::span(&values[i], 1))};
        events[i] = comm.send_receive({&send, 1}, {}, streams[i], "ordered");
      }
    } else {
      for (int i = 0; i < count; ++i) {
        const ReceiveSlice receive{RankId(0), std::as_writable_bytes(std::span(&values[i], 1))};
        events[i] = comm.send_receive({}, {&receive, 1}, streams[i], "ordered");
      }
    }
    for (int i = count - 1; i >= 0; --i) events[i].wait();
    for (int i = 0; i < count; ++i) EXPECT_EQ(values[i], 100 + i);
  });
}

TEST(SendReceive, NeedsNoAgreementOnTheOrderOfWaiting) {
  constexpr int ranks = 4;
  run_on(ranks, [](Communicator& comm) {
    const std::unique_ptr<Communicator> weights = comm.split(0);
    const int me = comm.rank().value();
    const Bytes out(20'000, static_cast<std::byte>(me));
    std::vector<Bytes> in(2 * ranks, Bytes(out.size()));
    CpuStream streams[2];
    std::vector<SendSlice> sends;
    for (int peer = 0; peer < ranks; ++peer) sends.push_back({RankId(peer), out});
    Communicator* const communicators[] = {&comm, weights.get()};
    // All sends are issued before all receives, and half of the ranks wait for the second stream first.
    for (std::size_t i : {0U, 1U}) communicators[i]->send_receive(sends, {}, streams[i], "out");
    for (std::size_t i : {0U, 1U}) {
      for (std::size_t peer = 0; peer < ranks; ++peer) {
        const ReceiveSlice receive{RankId(peer), in[i * ranks + peer]};
        communicators[i]->send_receive({}, {&receive, 1}, streams[i], "in");
      }
    }
    streams[me % 2].synchronize();
    streams[1 - me % 2].synchronize();
    for (std::size_t i = 0; i < in.size(); ++i) {
      EXPECT_EQ(in[i], Bytes(out.size(), static_cast<std::byte>(i % ranks)));
    }
  });
}

TEST(SendReceive, IsServedByARankThatSleepsOnAnotherMessage) {
  const auto body = [](Communicator& comm) {
    const std::unique_ptr<Communicator> weights = comm.split(0);
    std::byte token{1};
    std::byte weight{2};
    CpuStream streams[2];
    if (comm.rank() == RankId(0)) {
      const ReceiveSlice receives[] = {{RankId(1), {&token, 1}}, {RankId(1), {&weight, 1}}};
      const Event token_came = comm.send_receive({}, {&receives[0], 1}, streams[0], "token");
      weights->send_receive({}, {&receives[1], 1}, streams[1], "weight");
      token_came.wait();
      streams[1].synchronize();
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));  // by now rank 0 waits for the token
      const SendSlice sends[] = {{RankId(0), {&token, 1}}, {RankId(0), {&weight, 1}}};
      weights->send_receive({&sends[1], 1}, {}, streams[1], "weight").wait();
      comm.send_receive({&sends[0], 1}, {}, streams[0], "token").wait();
    }
    EXPECT_EQ(token, std::byte{1});
    EXPECT_EQ(weight, std::byte{2});
  };
  run_on(2, body, 5);
}

TEST(SendReceive, DeliversAnySize) {
  run_on(2, [](Communicator& comm) {
    CpuStream stream;
    const int other = 1 - comm.rank().value();
    for (std::size_t size : std::initializer_list<std::size_t>{1, 2, 3, 7, 63, 64, 65, 4095, 4096, 4097,
                                                               262'143, 262'144, 1'000'003, 5'000'000}) {
      const Bytes sent = payload(comm.rank().value(), other, 0, size);
      Bytes received(size);
      const SendSlice send{RankId(other), sent};
      const ReceiveSlice receive{RankId(other), received};
      comm.send_receive({&send, 1}, {&receive, 1}, stream, "sized").wait();
      EXPECT_EQ(received, payload(other, comm.rank().value(), 0, size)) << size;
    }
  });
}

// Needs 9 GB of memory, so it runs only in `make test-long`.
TEST(SendReceive, DeliversMoreBytesThanAnIntCounts) {
  if (std::getenv("EVENKEEL_STORM") == nullptr) GTEST_SKIP() << "EVENKEEL_STORM is not set";
  run_on(
      2,
      [](Communicator& comm) {
        constexpr std::size_t size = (std::size_t{1} << 31) + 12345;
        CpuStream stream;
        const auto me = static_cast<unsigned char>(comm.rank().value() + 1);
        const Bytes sent(size, std::byte{me});
        Bytes received(size);
        const SendSlice send{RankId(2 - me), sent};
        const ReceiveSlice receive{RankId(2 - me), received};
        comm.send_receive({&send, 1}, {&receive, 1}, stream, "large").wait();
        EXPECT_EQ(received, Bytes(size, static_cast<std::byte>(3 - me)));
      },
      300);
}

TEST(SendReceive, LeavesOutMessagesOfNoBytes) {
  run_on(3, [](Communicator& comm) {
    CpuStream stream;
    // Only one side names an empty message; it must not be matched with the next real message.
    const std::byte out{42};
    std::byte in{};
    std::vector<SendSlice> sends;
    std::vector<ReceiveSlice> receives;
    for (int peer = 0; peer < 3; ++peer) sends.push_back({RankId(peer), {}});
    if (comm.rank() == RankId(0)) sends.push_back({RankId(1), {&out, 1}});
    if (comm.rank() == RankId(1)) receives.push_back({RankId(0), {&in, 1}});
    comm.send_receive(sends, receives, stream, "empty").wait();
    EXPECT_EQ(in, comm.rank() == RankId(1) ? out : std::byte{});
    comm.send_receive({}, {}, stream, "nothing").wait();
  });
}

TEST(SendReceive, CopiesSoThatASenderMayOverwriteAfterItsEvent) {
  run_on(2, [](Communicator& comm) {
    CpuStream stream;
    Bytes buffer(100'000);
    for (int number = 0; number < 50; ++number) {
      if (comm.rank() == RankId(0)) {
        std::fill(buffer.begin(), buffer.end(), static_cast<std::byte>(number));
        const SendSlice send{RankId(1), buffer};
        comm.send_receive({&send, 1}, {}, stream, "overwritten").wait();
      } else {
        const ReceiveSlice receive{RankId(0), buffer};
        comm.send_receive({}, {&receive, 1}, stream, "overwritten").wait();
        EXPECT_EQ(buffer, Bytes(buffer.size(), static_cast<std::byte>(number)));
      }
    }
  });
}

TEST(SendReceive, RefusesAPeerThatDoesNotExist) {
  run_on(2, [](Communicator& comm) {
    CpuStream stream;
    std::byte value{};
    const SendSlice send{RankId(2), {&value, 1}};
    const ReceiveSlice receive{RankId(-1), {&value, 1}};
    EXPECT_THROW(comm.send_receive({&send, 1}, {}, stream, "wrong"), InvalidArgument);
    EXPECT_EQ(message_of<InvalidArgument>([&] {
                comm.send_receive({}, {&receive, 1}, stream, "wrong");
              }),
              "receives: rank -1 does not exist; allowed: 0..1");
  });
}

}  // namespace
}  // namespace evenkeel
