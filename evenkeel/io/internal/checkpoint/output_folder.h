// A folder that appears whole or not at all: filled beside its place and renamed when done.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "evenkeel/io/unfinished.h"

namespace evenkeel::internal {

class OutputFolder {
 public:
  // Throws InvalidArgument ("output") if something other than an empty folder is there, if the place is a
  // mount point or inside `input`, or if nothing can be made beside it. Without commit() nothing is left
  // behind.
  OutputFolder(const std::string& path, const std::string& input);

  // Where the folder is filled until it is done.
  const std::filesystem::path& beside() const { return folder_.beside(); }
  // Folders that killed runs have left beside the place.
  std::vector<std::string> leftovers() const;
  // Gives the folder its name.
  void commit();

 private:
  Unfinished folder_;
};

}  // namespace evenkeel::internal
