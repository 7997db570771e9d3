#include "evenkeel/io/atomic_file.h"

#include <sys/stat.h>

#include <filesystem>

#include "tests/io/support.h"

namespace evenkeel {
namespace {

class AtomicFiles : public InFolder {
 protected:
  void write(const std::string& name, std::string_view text) {
    AtomicFile file(folder / name);
    file.write(text);
    file.commit();
  }
  // Expects the message "PATH: cannot be written: WHY" for a path that cannot be written.
  void expect_refused(const std::string& name, const std::string& why) {
    EXPECT_EQ(message_of<InvalidArgument>([&] { AtomicFile(folder / name); }),
              folder / name + ": cannot be written: " + why);
  }
};

TEST_F(AtomicFiles, AppearsWithItsWholeContentOnCommit) {
  AtomicFile file(folder / "out");
  file.write("one ");
  file.write("two");
  EXPECT_FALSE(std::filesystem::exists(folder / "out"));
  file.commit();
  EXPECT_EQ(read_text(folder / "out"), "one two");
  EXPECT_EQ(folder.names(), std::vector<std::string>{"out"});
}

TEST_F(AtomicFiles, WithoutCommitLeavesWhatWasThereAndNothingElse) {
  write_text(folder / "out", "before");
  {
    AtomicFile file(folder / "out");
    file.write("half");
  }
  EXPECT_EQ(read_text(folder / "out"), "before");
  EXPECT_EQ(folder.names(), std::vector<std::string>{"out"});
}

TEST_F(AtomicFiles, CannotTakeThePlaceOfWhatIsNoFile) {
  std::filesystem::create_directory(folder / "out");
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  std::filesystem::create_symlink("loop", folder / "loop");
  expect_refused("no/such/out", "No such file or directory");
  expect_refused("out", "Is a directory");
  expect_refused("pipe", "it is not an ordinary file");
  expect_refused("/dev/null", "it is not an ordinary file");
  expect_refused("loop", "Too many levels of symbolic links");
}

TEST_F(AtomicFiles, ReplacesWhatALinkLeadsTo) {
  write_text(folder / "real", "before");
  std::filesystem::create_symlink("real", folder / "link");
  std::filesystem::create_symlink("later", folder / "dangling");
  for (const char* name : {"link", "dangling"}) {
    write(name, "after");
    EXPECT_TRUE(std::filesystem::is_symlink(folder / name));
  }
  EXPECT_EQ(read_text(folder / "real"), "after");
  EXPECT_EQ(read_text(folder / "later"), "after");
}

unsigned mode_of_file(const std::string& path) {
  struct stat there {};
  EXPECT_EQ(::stat(path.c_str(), &there), 0);
  return there.st_mode & 07777u;
}

TEST_F(AtomicFiles, KeepsTheModeOfTheFileThatItReplacesAndIsNeverOpenToMore) {
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

TEST_F(AtomicFiles, KeepsTheModeOfWhatALinkLeadsTo) {
  write_text(folder / "real", "before");
  ASSERT_EQ(::chmod((folder / "real").c_str(), 0600), 0);
  std::filesystem::create_symlink("real", folder / "link");
  write("link", "");
  EXPECT_EQ(mode_of_file(folder / "real"), 0600u);
}

TEST_F(AtomicFiles, HasNamesAsLongAsTheFileSystemHasThem) {
  for (const std::string& name : {std::string(230, 'n'), std::string(242, 'n'), std::string(255, 'n')}) {
    write(name, "whole");
    EXPECT_EQ(read_text(folder / name), "whole");
  }
  EXPECT_EQ(folder.names().size(), 3u);
}

}  // namespace
}  // namespace evenkeel
