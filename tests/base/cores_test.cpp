#include "evenkeel/base/cores.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <thread>

namespace evenkeel {
namespace {

TEST(UsableCores, AreThoseThatTheThreadIsBoundTo) {
  cpu_set_t all;
  ASSERT_EQ(sched_getaffinity(0, sizeof all, &all), 0);
  EXPECT_EQ(usable_cores(), CPU_COUNT(&all));
  int first = 0;
  while (!CPU_ISSET(first, &all)) ++first;
  int bound = 0;
  std::thread([&] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
    bound = usable_cores();
  }).join();
  EXPECT_EQ(bound, 1);
}

}  // namespace
}  // namespace evenkeel
