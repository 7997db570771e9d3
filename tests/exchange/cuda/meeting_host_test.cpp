// No rank lets its memory and its events go while another is at work on them, and none waits for good where
// an exception passes.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <string>
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

// What the others are told when rank 1 throws `what`, each in a Meeting that `body` is given; and that it
// does not take them the deadline.
template <class Body>
void expect_told(const char* what, const char* others_see, const Body& body) {
  constexpr double kDeadline = 20;
  const auto start = std::chrono::steady_clock::now();
  std::atomic<int> told = 0;
  const auto of_rank = [&](Communicator& comm) {
    try {
      cuda::Meeting meeting(comm);
      body(meeting, comm.rank());
    } catch (const CommError& error) {
      const bool is_right =
          error.peer() == 1 && std::string(error.what()).find(others_see) != std::string::npos;
      told += is_right ? 1 : 0;
      throw;
    }
  };
  try {
    run_ranks(kRanks, of_rank, {.deadline_seconds = kDeadline});
    FAIL() << "nothing was thrown";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), what);
  }
  EXPECT_EQ(told, kRanks - 1);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::duration<double>(kDeadline / 2));
}

// The others are within a visit and wait for the one that throws.
TEST(AMeeting, EndsAllWhereAnExceptionPasses) {
  std::atomic<int> within = 0;
  expect_told("out of paper", "rank 1 ", [&](cuda::Meeting& meeting, RankId rank) {
    if (rank == RankId(1)) {
      while (within < kRanks - 1) sleep_ms(1);
      throw std::runtime_error("out of paper");
    }
    const cuda::Visit visit = meeting.visit();
    ++within;
    meeting.gather();
  });
}

// An exception that passes while nobody is at work is told by who started the ranks, in its own words.
TEST(AMeeting, LeavesTheCauseToOthersWhereNobodyIsWithin) {
  expect_told("out of ink", "out of ink", [&](cuda::Meeting& meeting, RankId rank) {
    meeting.gather();
    if (rank == RankId(1)) throw std::runtime_error("out of ink");
    meeting.gather();
  });
}

}  // namespace
}  // namespace evenkeel::testing
