// What a build without CUDA reports.
#include <gtest/gtest.h>

#include <string>

#include "evenkeel/base/error.h"
#include "evenkeel/device/device.h"

namespace evenkeel {
namespace {

TEST(ABuildWithoutCuda, SaysThatItHasNoGpusAndWhatWould) {
  try {
    static_cast<void>(Device::cuda());
    FAIL() << "there is a GPU";
  } catch (const Unsupported& error) {
    EXPECT_NE(std::string(error.what()).find("-DEVENKEEL_CUDA=ON"), std::string::npos);
  }
}

}  // namespace
}  // namespace evenkeel
