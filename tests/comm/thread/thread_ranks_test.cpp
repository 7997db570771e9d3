// What thread ranks promise beyond other communicators: a posted send completes without the sender's help,
// nobody reads its bytes after an error, and run_ranks() rethrows the first exception unchanged.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <thread>

#include "evenkeel/base/error.h"
#include "evenkeel/comm/thread/run_ranks.h"
#include "evenkeel/device/cpu/stream.h"

namespace evenkeel {
namespace {

TEST(SendReceive, NeedsNoHelpFromASenderThatComputes) {
  std::atomic<bool> received = false;
  run_ranks(2, [&](Communicator& comm) {
    std::byte value{7};
    CpuStream stream;
    if (comm.rank() == RankId(0)) {
      const SendSlice send{RankId(1), {&value, 1}};
      const Event sent = comm.send_receive({&send, 1}, {}, stream, "unaided");
      while (!received) std::this_thread::sleep_for(std::chrono::milliseconds(1));  // busy: makes no calls
      sent.wait();
    } else {
      const ReceiveSlice receive{RankId(0), {&value, 1}};
      comm.send_receive({}, {&receive, 1}, stream, "unaided").wait();
      received = true;
    }
  });
  EXPECT_TRUE(received);
}

TEST(AThrowingRank, IsReportedWithItsOwnExceptionNotWithThoseItCaused) {
  struct Odd {
    int value;
  };
  try {
    run_ranks(4, [](Communicator& comm) {
      if (comm.rank() == RankId(2)) throw Odd{17};
      comm.split(0);
    });
    FAIL() << "threw nothing";
  } catch (const Odd& odd) {
    EXPECT_EQ(odd.value, 17);
  }
}

// Pages that are unmapped when destroyed, so that a later read ends the program.
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

constexpr std::size_t copy_bytes = 32 << 20;  // copying takes long enough for others to act meanwhile

using Interference = std::function<void(Communicator&, CpuStream&, const Event&)>;

// Rank 1 copies from rank 0 while `interfere` runs on rank 0 or, with `third_fails`, rank 2 fails. The
// disturbance comes `delay` after the copy may have begun. Returns true if the copy was not over by then.
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
          << "an incomplete copy was reported as complete";
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

// Disturbs the copy after increasing delays: before it begins, while it runs, and after it.
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
