#include "evenkeel/base/stop.h"

#include <gtest/gtest.h>

#include <thread>

namespace evenkeel {
namespace {

TEST(StopScope, StopsItsOwnThreadWhileItLives) {
  std::stop_source source;
  EXPECT_NO_THROW(stop_if_asked());
  {
    const StopScope scope(source.get_token());
    EXPECT_NO_THROW(stop_if_asked());
    source.request_stop();
    EXPECT_THROW(stop_if_asked(), Stopped);
    std::jthread([] { EXPECT_NO_THROW(stop_if_asked()); });
    {
      const StopScope inner(std::stop_token{});
      EXPECT_NO_THROW(stop_if_asked());
    }
    EXPECT_THROW(stop_if_asked(), Stopped);
  }
  EXPECT_NO_THROW(stop_if_asked());
}

}  // namespace
}  // namespace evenkeel
