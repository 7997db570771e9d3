// Messages for when the system refuses more open files or threads.
#include "evenkeel/base/system_limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>

namespace evenkeel {
namespace {

using ::testing::HasSubstr;

TEST(TooManyOpenFiles, AreSaidWithTheLimitToRaise) {
  EXPECT_THAT(describe_errno(EMFILE), HasSubstr("ulimit -n"));
  EXPECT_THAT(describe_errno(ENFILE), HasSubstr("fs.file-max"));
  EXPECT_EQ(describe_errno(ENOENT), "No such file or directory");
}

TEST(TooFewThreads, AreSaidWithBothNumbersAndWhereToLook) {
  const std::system_error cause(std::make_error_code(std::errc::resource_unavailable_try_again));
  const std::string what = too_few_threads(16, 3, "one for each rank", cause).what();
  for (const char* part :
       {"16 threads are needed (one for each rank)", "only 3 could", "ulimit -u", "pids.max"})
    EXPECT_THAT(what, HasSubstr(part));
}

}  // namespace
}  // namespace evenkeel
