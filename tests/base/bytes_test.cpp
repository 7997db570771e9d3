#include "evenkeel/base/bytes.h"

#include <gtest/gtest.h>

#include "evenkeel/base/error.h"

namespace evenkeel {
namespace {

TEST(Bytes, ReadsEveryUnitWithAndWithoutASpace) {
  EXPECT_EQ(parse_bytes("0", "budget"), 0);
  EXPECT_EQ(parse_bytes("512MiB", "budget"), 512LL << 20);
  EXPECT_EQ(parse_bytes("1.5 GiB", "budget"), 3LL << 29);
  EXPECT_EQ(parse_bytes("20GB", "budget"), 20'000'000'000LL);
}

TEST(Bytes, RefusesWhatIsNoSizeAndNamesTheArgument) {
  for (const char* bad : {"", "MiB", "-1", "12 parsecs", "1e30", "nan", "0x10"}) {
    try {
      parse_bytes(bad, "budget");
      FAIL() << "took \"" << bad << '"';
    } catch (const InvalidArgument& error) {
      EXPECT_NE(std::string(error.what()).find("budget"), std::string::npos) << error.what();
    }
  }
}

TEST(Bytes, WritesTheLargestUnitThatFits) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(64172851), "61.2 MiB");
}

}  // namespace
}  // namespace evenkeel
