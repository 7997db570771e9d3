// A folder that appears whole or not at all: filled beside its place and renamed when done.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace evenkeel::internal {

class OutputFolder {
 public:
  // Throws InvalidArgument ("output") if something other than an empty folder is there, if the place is a
  // mount point or inside `input`, or if nothing can be made beside it.
  OutputFolder(const std::string& path, const std::string& input);
  // Without commit() nothing is left behind.
  ~OutputFolder();
  OutputFolder(const OutputFolder&) = delete;
  OutputFolder& operator=(const OutputFolder&) = delete;

  // Where the folder is filled until it is done.
  const std::filesystem::path& beside() const { return beside_; }
  // What runs that were killed have left beside the place.
  std::vector<std::string> leftovers() const;
  // Gives the folder its name.
  void commit();

 private:
  std::filesystem::path place_;
  std::filesystem::path beside_;
  bool committed_ = false;
};

}  // namespace evenkeel::internal
