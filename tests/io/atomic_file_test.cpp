#include "evenkeel/io/atomic_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

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
  EXPECT_EQ(message_of<InvalidArgument>([&] { AtomicFile(folder / "out"); }),
            (folder / "out") + ": cannot be written: Is a directory");
}

TEST(AtomicFile, CannotTakeThePlaceOfADeviceOrAPipe) {
  TempFolder folder;
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(message_of<InvalidArgument>([&] { AtomicFile(folder / "pipe"); }),
            (folder / "pipe") + ": cannot be written: is no ordinary file");
  EXPECT_EQ(message_of<InvalidArgument>([&] { AtomicFile("/dev/null"); }),
            "/dev/null: cannot be written: is no ordinary file");
}

TEST(AtomicFile, ReplacesWhatALinkLeadsTo) {
  TempFolder folder;
  write_text(folder / "real", "before");
  std::filesystem::create_symlink("real", folder / "link");
  std::filesystem::create_symlink("later", folder / "dangling");
  for (const char* name : {"link", "dangling"}) {
    AtomicFile file(folder / name);
    file.write("after");
    file.commit();
    EXPECT_TRUE(std::filesystem::is_symlink(folder / name));
  }
  EXPECT_EQ(read_text(folder / "real"), "after");
  EXPECT_EQ(read_text(folder / "later"), "after");
  std::filesystem::create_symlink("loop", folder / "loop");
  EXPECT_EQ(message_of<InvalidArgument>([&] { AtomicFile(folder / "loop"); }),
            (folder / "loop") + ": cannot be written: Too many levels of symbolic links");
}

unsigned mode_of_file(const std::string& path) {
  struct stat there {};
  EXPECT_EQ(::stat(path.c_str(), &there), 0);
  return there.st_mode & 07777u;
}

TEST(AtomicFile, KeepsTheModeOfTheFileThatItReplacesAndIsNeverOpenToMore) {
  TempFolder folder;
  for (const unsigned mode : {0600u, 0640u, 0444u, 0666u, 0755u, 0000u}) {
    write_text(folder / "out", "before");
    ASSERT_EQ(::chmod((folder / "out").c_str(), mode), 0);
    AtomicFile file(folder / "out");
    file.write("after");
    for (const std::string& name : folder.names())
      EXPECT_EQ(mode_of_file(folder / name) & 077u, mode & 077u) << name;
    file.commit();
    EXPECT_EQ(mode_of_file(folder / "out"), mode);
    std::filesystem::remove(folder / "out");
  }
}

TEST(AtomicFile, KeepsTheModeOfWhatALinkLeadsTo) {
  TempFolder folder;
  write_text(folder / "real", "before");
  ASSERT_EQ(::chmod((folder / "real").c_str(), 0600), 0);
  std::filesystem::create_symlink("real", folder / "link");
  AtomicFile file(folder / "link");
  file.commit();
  EXPECT_EQ(mode_of_file(folder / "real"), 0600u);
}

TEST(AtomicFile, HasNamesAsLongAsTheFileSystemHasThem) {
  TempFolder folder;
  for (const std::string& name : {std::string(230, 'n'), std::string(242, 'n'), std::string(255, 'n')}) {
    AtomicFile file(folder / name);
    file.write("whole");
    file.commit();
    EXPECT_EQ(read_text(folder / name), "whole");
  }
  EXPECT_EQ(folder.names().size(), 3u);
}

}  // namespace
}  // namespace evenkeel
