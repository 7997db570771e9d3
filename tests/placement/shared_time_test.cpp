// Parts that share the time of a solve: hard parts get the time that easy parts leave.
#include "evenkeel/placement/internal/shared_time.h"

#include <gtest/gtest.h>

#include <chrono>
#include <limits>
#include <stop_token>
#include <thread>
#include <vector>

namespace evenkeel::internal {
namespace {

const auto never = [] { return false; };

void sleep(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

TEST(SharedTime, APartThatDoesNotEndIsTriedAgainWithAllThatOthersLeave) {
  const Deadline deadline({.time_limit_s = 10});
  std::vector<double> shares;
  const auto solve = [&](std::size_t part, double seconds) {
    if (part != 0) return true;
    shares.push_back(seconds);
    sleep(seconds);
    return false;
  };
  const auto open = solve_in_rounds({{0}, {1}, {2}, {3}}, 0.4, deadline, solve, never);
  ASSERT_EQ(open.size(), 1u);
  EXPECT_EQ(open[0].part, 0u);
  ASSERT_EQ(shares.size(), 2u);
  EXPECT_NEAR(shares[0], 0.025, 0.01);  // a quarter of the first round
  EXPECT_GT(shares[1], 0.3);
  EXPECT_GE(deadline.seconds(), 0.4);
}

TEST(SharedTime, OnePartHasAllOfIt) {
  const Deadline deadline({.time_limit_s = 10});
  double share = 0;
  const auto solve = [&](std::size_t, double seconds) {
    share = seconds;
    return true;
  };
  EXPECT_TRUE(solve_in_rounds({{5}}, 2, deadline, solve, never).empty());
  EXPECT_NEAR(share, 2, 0.1);
}

TEST(SharedTime, NothingIsTriedOnceThereIsEnoughOrTheTimeIsOver) {
  int tried = 0;
  const auto solve = [&](std::size_t, double) {
    ++tried;
    return true;
  };
  const Deadline later({.time_limit_s = 10});
  EXPECT_TRUE(solve_in_rounds({{0}, {1}}, 1, later, solve, [&] { return tried == 1; }).empty());
  EXPECT_EQ(tried, 1);
  std::stop_source stop;
  stop.request_stop();
  const Deadline stopped({.stop = stop.get_token()});
  EXPECT_EQ(solve_in_rounds({{0}, {1}}, 1, stopped, solve, never).size(), 2u);
  EXPECT_EQ(tried, 1);
}

// A part that always ends at once without a proof must not be tried forever.
TEST(SharedTime, ItEndsWhereMoreTimeWouldBringNothing) {
  const Deadline deadline({.time_limit_s = 10});
  int tried = 0;
  const auto solve = [&](std::size_t, double) {
    ++tried;
    return false;
  };
  EXPECT_EQ(solve_in_rounds({{0}, {1}}, 5, deadline, solve, never).size(), 2u);
  EXPECT_LT(tried, 8);
  EXPECT_LT(deadline.seconds(), 1);
}

TEST(SharedTime, TimeWithoutALimitIsSharedToo) {
  const Deadline deadline({.time_limit_s = std::numeric_limits<double>::infinity()});
  double share = 0;
  const auto solve = [&](std::size_t, double seconds) {
    share = seconds;
    return true;
  };
  EXPECT_TRUE(solve_in_rounds({{0}, {1}}, deadline.seconds_left(), deadline, solve, never).empty());
  EXPECT_GT(share, 1e6);
}

}  // namespace
}  // namespace evenkeel::internal
