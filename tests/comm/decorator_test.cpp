// What the recording communicator counts, and when the faulty communicator injects its fault.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "evenkeel/base/error.h"
#include "evenkeel/comm/faulty.h"
#include "evenkeel/comm/recording.h"
#include "evenkeel/comm/thread/run_ranks.h"
#include "evenkeel/device/cpu/stream.h"
#include "tests/routing/message.h"

namespace evenkeel {
namespace {

using Bytes = std::vector<std::byte>;

TEST(RecordingCommunicator, CountsWhatCrossesRanksByName) {
  constexpr int ranks = 4;
  run_ranks(ranks, [](Communicator& comm) {
    RecordingCommunicator recorded(comm);
    const int me = comm.rank().value();
    CpuStream stream;
    // Rank a sends 10 a + b bytes to rank b, including itself; rank 0 thus sends itself 0 bytes.
    Bytes out(64);
    Bytes in(64);
    std::vector<SendSlice> sends;
    std::vector<ReceiveSlice> receives;
    std::size_t sent = 0;
    std::size_t received = 0;
    for (int peer = 0; peer < ranks; ++peer) {
      const auto to = static_cast<std::size_t>(10 * me + peer);
      const auto from = static_cast<std::size_t>(10 * peer + me);
      sends.push_back({RankId(peer), std::span(out).first(to)});
      receives.push_back({RankId(peer), std::span(in).first(from)});
      if (peer != me) sent += to, received += from;
    }
    for (int step = 0; step < 3; ++step) recorded.send_receive(sends, receives, stream, "dispatch").wait();
    Bytes all(4 * 5);
    recorded.all_gather(std::span(out).first(5), all, stream, "counts").wait();
    std::int64_t value = 1;
    recorded.all_reduce(std::span(&value, 1), Reduction::sum, stream).wait();

    ASSERT_EQ(recorded.records().size(), 3U);
    const OperationRecord dispatch = recorded.records()[0];
    EXPECT_EQ(dispatch.name, "dispatch");
    EXPECT_EQ(dispatch.calls, 3);
    EXPECT_EQ(dispatch.messages_sent, 9);
    EXPECT_EQ(dispatch.messages_received, 9);
    EXPECT_EQ(dispatch.bytes_sent, static_cast<std::int64_t>(3 * sent));
    EXPECT_EQ(dispatch.bytes_received, static_cast<std::int64_t>(3 * received));
    EXPECT_EQ(recorded.record("counts").bytes_sent, 15);
    EXPECT_EQ(recorded.record("counts").messages_received, 3);
    EXPECT_EQ(recorded.record("all_reduce").bytes_received, 24);
    EXPECT_EQ(recorded.record("combine").calls, 0);
    EXPECT_EQ(recorded.total().bytes_sent, dispatch.bytes_sent + 15 + 24);
    recorded.reset();
    EXPECT_EQ(recorded.record("dispatch").calls, 0);
    EXPECT_EQ(recorded.records().size(), 3U);
  });
}

TEST(RecordingCommunicator, CountsOperationsOfSplitCommunicatorsInTheSameRecords) {
  run_ranks(2, [](Communicator& comm) {
    RecordingCommunicator recorded(comm);
    const std::unique_ptr<Communicator> part = recorded.split(0);
    CpuStream stream;
    const Bytes mine(100);
    Bytes all(200);
    part->all_gather(mine, all, stream, "transfer").wait();
    EXPECT_EQ(recorded.record("transfer").bytes_sent, 100);
  });
}

TEST(RecordingCommunicator, SeparatesWaitingFromCopying) {
  std::atomic<bool> waits = false;
  run_ranks(2, [&](Communicator& comm) {
    RecordingCommunicator recorded(comm);
    CpuStream stream;
    if (comm.rank() == RankId(0)) {
      while (!waits) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
    }
    std::int64_t value = 1;
    recorded.all_reduce(std::span(&value, 1), Reduction::sum, stream, "late");
    if (comm.rank() == RankId(1)) waits = true;
    stream.synchronize();  // draining the stream is timed as well, not only waiting for the event
    const OperationRecord late = recorded.record("late");
    EXPECT_GE(late.wait_seconds(), comm.rank() == RankId(1) ? 0.05 : 0.0);
    EXPECT_LT(late.cpu_seconds, 0.05);
  });
}

TEST(RecordingCommunicator, PassesErrorsOnAndStaysUsable) {
  run_ranks(1, [](Communicator& comm) {
    RecordingCommunicator recorded(comm);
    CpuStream stream;
    const Bytes mine(3);
    Bytes all(3);
    EXPECT_THROW(recorded.all_gather(mine, std::span(all).first(2), stream, "wrong"), InvalidArgument);
    recorded.all_gather(mine, all, stream, "right").wait();
    EXPECT_EQ(recorded.record("wrong").calls, 0);
    EXPECT_EQ(recorded.record("right").calls, 1);
  });
}

TEST(FaultyCommunicator, StrikesAtTheChosenOperationOnly) {
  run_ranks(1, [](Communicator& comm) {
    FaultyCommunicator faulty(comm, {.operation = "dispatch", .at = 3});
    CpuStream stream;
    const auto dispatch = [&] { faulty.send_receive({}, {}, stream, "dispatch").wait(); };
    dispatch();
    faulty.send_receive({}, {}, stream, "combine").wait();
    dispatch();
    EXPECT_EQ(message_of<InjectedFault>(dispatch), "injected failure at dispatch number 3");
    dispatch();
  });
}

TEST(FaultyCommunicator, SharesItsFaultWithSplitCommunicators) {
  run_ranks(1, [](Communicator& comm) {
    FaultyCommunicator faulty(comm, {.operation = "transfer", .at = 2});
    const std::unique_ptr<Communicator> part = faulty.split(0);
    CpuStream stream;
    part->send_receive({}, {}, stream, "transfer").wait();
    EXPECT_THROW(part->send_receive({}, {}, stream, "transfer"), InjectedFault);
  });
}

TEST(FaultyCommunicator, DelaysWithoutChangingWhatArrives) {
  run_ranks(3, [](Communicator& comm) {
    FaultyCommunicator faulty(comm,
                              {.kind = Fault::Kind::delay, .at = 0, .seconds = 0.01 * comm.rank().value()});
    CpuStream stream;
    for (std::int64_t step = 0; step < 3; ++step) {
      std::int64_t value = comm.rank().value() + step;
      faulty.all_reduce(std::span(&value, 1), Reduction::sum, stream).wait();
      EXPECT_EQ(value, 3 + 3 * step);
    }
  });
}

TEST(FaultyCommunicator, IsNotSilentForEver) {
  EXPECT_THROW(run_ranks(1,
                         [](Communicator& comm) {
                           FaultyCommunicator faulty(comm, {.kind = Fault::Kind::silence, .seconds = 0.02});
                           faulty.split(0);
                         }),
               InjectedFault);
}

}  // namespace
}  // namespace evenkeel
