// Files and folders in a checkpoint's folder besides its tensors.
#pragma once

#include <string>
#include <vector>

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

}  // namespace evenkeel::internal
