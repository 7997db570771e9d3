// Files and folders that this process writes under a temporary name. The destructor removes one that was not
// renamed. A program that is about to end by a signal removes them all with discard_unfinished().
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace evenkeel {

// Flushes a folder's directory entries to disk. Errors are ignored.
void flush_folder(const std::filesystem::path& folder);

// A file or folder with a unique temporary name in the folder of its final path, `path`. The temporary name
// is the final name, then the process id and a number. The final name is shortened if the whole is too long
// for the file system.
class TemporaryEntry {
 public:
  // `make` makes the file or folder with the given name and returns 0 or an errno. On EEXIST it is called
  // again with another name; any other errno is thrown as std::system_error.
  TemporaryEntry(std::filesystem::path path, const std::function<int(const char* name)>& make);
  // Removes the file or folder unless it was renamed.
  ~TemporaryEntry();
  TemporaryEntry(const TemporaryEntry&) = delete;
  TemporaryEntry& operator=(const TemporaryEntry&) = delete;

  const std::filesystem::path& final_path() const { return final_path_; }
  const std::filesystem::path& temporary_path() const { return temporary_path_; }
  // Renames it to final_path(). Its content must already be flushed to disk; the new name is flushed here.
  // Returns 0 or an errno.
  int rename();

  // Whether `name` is a temporary name that some process may have used for `path`.
  static bool is_temporary_name(const std::filesystem::path& path, const std::string& name);

 private:
  std::filesystem::path final_path_;
  std::filesystem::path temporary_path_;
  bool renamed_ = false;
};

// Removes all unfinished files and folders, and returns their final paths, except paths inside an unfinished
// folder. After this call any thread that makes, renames or destroys a TemporaryEntry blocks for ever, so the
// program must end now. Call it from a thread that waits for signals, not from a signal handler.
std::vector<std::string> discard_unfinished();

}  // namespace evenkeel
