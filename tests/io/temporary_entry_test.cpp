// Files and folders that are written under a temporary name.
#include "evenkeel/io/temporary_entry.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "evenkeel/io/atomic_file.h"
#include "tests/io/support.h"

namespace evenkeel {
namespace {

using UnfinishedFiles = InFolder;

int make_folder(const char* name) {
  return ::mkdir(name, 0777) == 0 ? 0 : errno;
}

TEST_F(UnfinishedFiles, IsGoneWithItsContentUnlessItWasRenamed) {
  {
    TemporaryEntry left(folder / "left", make_folder);
    write_text((left.temporary_path() / "file").string(), "half");
    TemporaryEntry done(folder / "done", make_folder);
    write_text((done.temporary_path() / "file").string(), "whole");
    EXPECT_EQ(done.rename(), 0);
    EXPECT_TRUE(
        TemporaryEntry::is_temporary_name(folder / "left", left.temporary_path().filename().string()));
    EXPECT_FALSE(
        TemporaryEntry::is_temporary_name(folder / "done", left.temporary_path().filename().string()));
  }
  EXPECT_EQ(folder.names(), std::vector<std::string>{"done"});
  EXPECT_EQ(read_text(folder / "done/file"), "whole");
}

TEST_F(UnfinishedFiles, AsksAgainWhereTheNameIsTaken) {
  int asked = 0;
  TemporaryEntry file(folder / "out",
                      [&](const char* name) { return ++asked < 3 ? EEXIST : make_folder(name); });
  EXPECT_EQ(asked, 3);
  EXPECT_THROW(TemporaryEntry(folder / "out", [](const char*) { return EACCES; }), std::system_error);
}

// Runs in a process of its own, because discard_unfinished() makes every later writer block forever.
[[noreturn]] void discard_and_exit(const std::string& path, const std::string& folder) {
  AtomicFile file(path);
  file.write("half");
  TemporaryEntry around(folder, make_folder);
  AtomicFile inside((around.temporary_path() / "inside").string());
  const std::vector<std::string> places = discard_unfinished();
  ::_exit(places == std::vector<std::string>{path, folder} ? 7 : 1);
}

TEST(DiscardUnfinishedDeathTest, RemovesAllAndNamesWhatDoesNotAppear) {
  TempFolder folder;
  write_text(folder / "file", "before");
  EXPECT_EXIT(discard_and_exit(folder / "file", folder / "folder"), testing::ExitedWithCode(7), "");
  EXPECT_EQ(folder.names(), std::vector<std::string>{"file"});
  EXPECT_EQ(read_text(folder / "file"), "before");
}

}  // namespace
}  // namespace evenkeel
