// No rank frees its memory and events while another rank uses them, and no rank waits forever if an exception
// is thrown.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>

#include "evenkeel/base/error.h"
#include "evenkeel/comm/thread/run_ranks.h"
#include "evenkeel/exchange/cuda/stream_barrier.h"

namespace evenkeel::testing {
namespace {

constexpr int kRanks = 4;

void sleep_ms(int ms) {
  std::this_thread::sleep_for(std::chrono::milliseconds(ms));
}

TEST(AStreamBarrier, EndsWhenEveryOtherRankIsPastItsScopes) {
  for (int slow = 0; slow < kRanks; ++slow) {
    std::atomic<bool> is_past = false;
    run_ranks(kRanks, [&](Communicator& comm) {
      const bool is_slow = comm.rank() == RankId(slow);
      {
        cuda::StreamBarrier barrier(comm);
        {
          const cuda::PeerAccessScope scope = barrier.scope();
          barrier.gather();  // now every rank is inside a scope
          if (is_slow) {
            const cuda::PeerAccessScope within = barrier.scope();
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

// Runs `body` with a StreamBarrier on each rank; rank 1 throws `what`. The other ranks must get an error that
// names rank 1 and contains `others_see`, well before the deadline.
template <class Body>
void expect_all_ranks_failed(const char* what, const char* others_see, const Body& body) {
  constexpr double kDeadline = 20;
  const auto start = std::chrono::steady_clock::now();
  std::atomic<int> right_errors = 0;
  const auto of_rank = [&](Communicator& comm) {
    try {
      cuda::StreamBarrier barrier(comm);
      body(barrier, comm.rank());
    } catch (const CommError& error) {
      const bool is_right =
          error.peer() == 1 && std::string(error.what()).find(others_see) != std::string::npos;
      right_errors += is_right ? 1 : 0;
      throw;
    }
  };
  try {
    run_ranks(kRanks, of_rank, {.deadline_seconds = kDeadline});
    FAIL() << "nothing was thrown";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), what);
  }
  EXPECT_EQ(right_errors, kRanks - 1);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::duration<double>(kDeadline / 2));
}

// The other ranks are inside a scope and wait for the rank that throws.
TEST(AStreamBarrier, EndsAllWhereAnExceptionPasses) {
  std::atomic<int> within = 0;
  expect_all_ranks_failed("out of paper", "rank 1 ", [&](cuda::StreamBarrier& barrier, RankId rank) {
    if (rank == RankId(1)) {
      while (within < kRanks - 1) sleep_ms(1);
      throw std::runtime_error("out of paper");
    }
    const cuda::PeerAccessScope scope = barrier.scope();
    ++within;
    barrier.gather();
  });
}

// An exception thrown while no rank is in a scope is reported by run_ranks(), with its own message.
TEST(AStreamBarrier, LeavesTheCauseToOthersWhereNobodyIsWithin) {
  expect_all_ranks_failed("out of ink", "out of ink", [&](cuda::StreamBarrier& barrier, RankId rank) {
    barrier.gather();
    if (rank == RankId(1)) throw std::runtime_error("out of ink");
    barrier.gather();
  });
}

}  // namespace
}  // namespace evenkeel::testing
