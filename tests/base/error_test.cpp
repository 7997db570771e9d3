// What a person reads of an error.
#include "evenkeel/base/error.h"

#include <gtest/gtest.h>

#include <string>

namespace evenkeel {
namespace {

TEST(BudgetTooSmall, SaysBothSizesInBytesWhereTheyWouldReadAlike) {
  EXPECT_EQ(
      std::string(BudgetTooSmall(7679, 7680, "a layer").what()),
      "budget 7679 bytes is below the least that runs every routing of this shape: 7680 bytes (a layer)");
  EXPECT_EQ(std::string(BudgetTooSmall(48 << 20, 61 << 20, "a layer").what()),
            "budget 48.0 MiB is below the least that runs every routing of this shape: 61.0 MiB (a layer)");
}

}  // namespace
}  // namespace evenkeel
