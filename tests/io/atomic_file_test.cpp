#include "evenkeel/io/atomic_file.h"

#include <gtest/gtest.h>

#include "evenkeel/base/error.h"
#include "tests/io/support.h"
#include "tests/routing/message.h"

namespace evenkeel {
namespace {

TEST(AtomicFile, AppearsWithItsWholeContentOnCommit) {
  TempFolder folder;
  AtomicFile file(folder / "out");
  file.write("one ");
  file.write("two");
  EXPECT_FALSE(std::filesystem::exists(folder / "out"));
  file.commit();
  EXPECT_EQ(read_text(folder / "out"), "one two");
  EXPECT_EQ(folder.names(), std::vector<std::string>{"out"});
}

TEST(AtomicFile, WithoutCommitLeavesWhatWasThereAndNothingElse) {
  TempFolder folder;
  write_text(folder / "out", "before");
  {
    AtomicFile file(folder / "out");
    file.write("half");
  }
  EXPECT_EQ(read_text(folder / "out"), "before");
  EXPECT_EQ(folder.names(), std::vector<std::string>{"out"});
}

TEST(AtomicFile, WhereNothingCanBeWrittenSaysSo) {
  TempFolder folder;
  EXPECT_EQ(message_of<InvalidArgument>([&] { AtomicFile(folder / "no/such/out"); }),
            (folder / "no/such/out") + ": cannot be written: No such file or directory");
}

TEST(AtomicFile, CannotTakeThePlaceOfAFolder) {
  TempFolder folder;
  std::filesystem::create_directory(folder / "out");
  AtomicFile file(folder / "out");
  file.write("x");
  EXPECT_EQ(message_of<InvalidArgument>([&] { file.commit(); }),
            (folder / "out") + ": cannot be written: Is a directory");
}

}  // namespace
}  // namespace evenkeel
