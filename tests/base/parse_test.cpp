#include "evenkeel/base/parse.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "evenkeel/base/error.h"

namespace evenkeel {
namespace {

using testing::ElementsAre;

TEST(Parse, TakesWholeNumbersInTheirRangeAlone) {
  EXPECT_EQ(parse_whole("ranks", "8", 1, 8), 8);
  EXPECT_EQ(parse_whole("ranks", "9223372036854775807", 0, kAnySize), kAnySize);
  for (const char* bad : {"", "0", "9", "1.0", " 1", "1 ", "0x1", "+1", "9223372036854775808"})
    EXPECT_THROW(parse_whole("ranks", bad, 1, 8), InvalidArgument) << bad;
}

TEST(Parse, TakesFiniteNumbersBelowTheirEndAlone) {
  EXPECT_EQ(parse_number("gap", "0.25", 0, 1), 0.25);
  for (const char* bad : {"", "1", "-0.1", "nan", "inf", "0.5x"})
    EXPECT_THROW(parse_number("gap", bad, 0, 1), InvalidArgument) << bad;
}

TEST(Parse, WritesThousandthsAsItReadsThem) {
  for (const std::int64_t number : {0, 1, 10, 100, 1000, 1250, 123'456})
    EXPECT_EQ(parse_thousandths("factor", format_thousandths(number), 0), number);
  EXPECT_EQ(format_thousandths(1250), "1.25");
  EXPECT_EQ(format_thousandths(1000), "1.0");
  for (const char* bad : {"", ".5", "1.", "1.2345", "-1", "1e3", "1234567890123"})
    EXPECT_THROW(parse_thousandths("factor", bad, 0), InvalidArgument) << bad;
}

TEST(Parse, SplitsAtEverySeparator) {
  EXPECT_THAT(split("a,,b", ','), ElementsAre("a", "", "b"));
  EXPECT_THAT(split("", ','), ElementsAre(""));
}

TEST(Nearest, FindsTheWordThatFewTypingErrorsLieBetween) {
  const std::vector<std::string> words = {"--planner", "--placement", "--ranks"};
  EXPECT_EQ(nearest("--planer", words), "--planner");
  EXPECT_EQ(nearest("--rnaks", words), "--ranks");
  EXPECT_EQ(nearest("--place", words), "--placement");
  EXPECT_EQ(nearest("--budget", words), "");
  EXPECT_EQ(nearest("", words), "");
}

}  // namespace
}  // namespace evenkeel
