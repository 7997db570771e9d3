// The folder of a checkpoint that is read, and of one that is written.
#pragma once

#include <string>
#include <vector>

#include "evenkeel/io/unfinished.h"

namespace evenkeel::internal {

// Paths from the folder on, sorted. Links to files are files.
struct FolderFiles {
  std::vector<std::string> files;
  std::vector<std::string> folders;
};

// Everything but .git and .cache, which hold other tools' records of the files as they were downloaded.
// Throws ParseError if the folder cannot be read, Unsupported if something in it is neither file nor folder.
FolderFiles list_files(const std::string& folder);

// By its name, what may hold weights in a format that is not permuted.
bool may_be_weights(const std::string& file);

// By its name, what may say how single modules are quantized: quant_model_description.json and its like.
bool may_speak_of_quantization(const std::string& file);

// Makes a folder with what the umask leaves of another one's permissions; its owner may write in it. 0, or an
// errno.
int make_folder_like(const char* name, const std::string& other);

// A folder that appears whole or not at all, with the permissions of `input`, or fewer where an empty folder
// is there that has fewer: filled beside its place until commit(). Throws InvalidArgument ("output") if
// something other than an empty folder is there, if the place is a mount point or inside `input`, or if
// nothing can be made beside it.
Unfinished output_folder(const std::string& path, const std::string& input);
// Folders that killed runs have left beside the place.
std::vector<std::string> leftovers_of(const Unfinished& folder);
// Gives the folder its name.
void commit(Unfinished& folder);

}  // namespace evenkeel::internal
