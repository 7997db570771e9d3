// Files and folders that this process is writing and that have not got their names yet. Each removes itself
// when its writer goes away; a program that is about to end by a signal removes them all.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace evenkeel {

// Puts the names in a folder on the disk; where that cannot be done they stand all the same.
void flush_folder(const std::filesystem::path& folder);

// A name beside a place, which no other file has: that of the place with the process and a number behind, and
// without its own end where all of it would be too long for the file system.
class Unfinished {
 public:
  // `make` makes the file or folder of the name that it is given, and returns 0 or an errno; on EEXIST it is
  // asked again with another. Throws std::system_error on any other.
  Unfinished(std::filesystem::path place, const std::function<int(const char* name)>& make);
  // Removes the file or folder that was made, unless it has its name.
  ~Unfinished();
  Unfinished(const Unfinished&) = delete;
  Unfinished& operator=(const Unfinished&) = delete;

  const std::filesystem::path& place() const { return place_; }
  const std::filesystem::path& beside() const { return beside_; }
  // Gives it the name of its place; what is in it must be on the disk, as then the name is. 0, or an errno.
  int rename();

  // Whether `name` is one that some process would write beside the place.
  static bool is_beside(const std::filesystem::path& place, const std::string& name);

 private:
  std::filesystem::path place_;
  std::filesystem::path beside_;
  bool renamed_ = false;
};

// Removes all that is unfinished, and returns the places that do not get it, folders' own files left out.
// Whoever begins or ends one from then on waits for ever: for a program that ends now. Not for a signal
// handler, but for a thread that waits for signals.
std::vector<std::string> discard_unfinished();

}  // namespace evenkeel
