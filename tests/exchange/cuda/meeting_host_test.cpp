// No rank lets its memory and its events go while another is at work on them, and none waits for good where
// an exception passes.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>

#include "evenkeel/base/error.h"
#include "evenkeel/comm/thread/run_ranks.h"
#include "evenkeel/exchange/cuda/meeting.h"

namespace evenkeel::testing {
namespace {

constexpr int kRanks = 4;

void sleep_ms(int ms) {
  std::this_thread::sleep_for(std::chrono::milliseconds(ms));
}

TEST(AMeeting, EndsWhenEveryOtherRankIsPastItsVisits) {
  for (int slow = 0; slow < kRanks; ++slow) {
    std::atomic<bool> is_past = false;
    run_ranks(kRanks, [&](Communicator& comm) {
      const bool is_slow = comm.rank() == RankId(slow);
      {
        cuda::Meeting meeting(comm);
        {
          const cuda::Visit visit = meeting.visit();
          meeting.gather();  // all are within one
          if (is_slow) {
            const cuda::Visit within = meeting.visit();
            sleep_ms(20);
          }
          if (is_slow) sleep_ms(20);
          if (is_slow) is_past = true;
        }
      }
      EXPECT_TRUE(is_past) << "rank " << comm.rank().value() << " did not wait for rank " << slow;
    });
  }
}

// The others are within a visit and wait for the one that throws.
TEST(AMeeting, EndsAllWhereAnExceptionPasses) {
  constexpr double kDeadline = 20;
  const auto start = std::chrono::steady_clock::now();
  std::atomic<int> told = 0;
  const auto body = [&](Communicator& comm) {
    cuda::Meeting meeting(comm);
    if (comm.rank() == RankId(1)) {
      sleep_ms(20);
      throw std::runtime_error("out of paper");
    }
    const cuda::Visit visit = meeting.visit();
    try {
      meeting.gather();
    } catch (const CommError& error) {
      told += error.peer() == 1 ? 1 : 0;
      throw;
    }
  };
  try {
    run_ranks(kRanks, body, {.deadline_seconds = kDeadline});
    FAIL() << "nothing was thrown";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "out of paper");
  }
  EXPECT_EQ(told, kRanks - 1);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::duration<double>(kDeadline / 2));
}

// An exception that passes while nobody is at work is told by who started the ranks, in its own words.
TEST(AMeeting, LeavesTheCauseToOthersWhereNobodyIsWithin) {
  std::atomic<int> told = 0;
  const auto body = [&](Communicator& comm) {
    cuda::Meeting meeting(comm);
    meeting.gather();
    sleep_ms(20);  // all are out of it
    if (comm.rank() == RankId(2)) throw std::runtime_error("out of ink");
    sleep_ms(50);
    try {
      meeting.gather();
    } catch (const CommError& error) {
      told += std::string(error.what()).find("out of ink") != std::string::npos ? 1 : 0;
      throw;
    }
  };
  EXPECT_THROW(run_ranks(kRanks, body, {.deadline_seconds = 20}), std::runtime_error);
  EXPECT_EQ(told, kRanks - 1);
}

}  // namespace
}  // namespace evenkeel::testing
