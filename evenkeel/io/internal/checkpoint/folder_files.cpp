#include "evenkeel/io/internal/checkpoint/folder_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "evenkeel/base/error.h"
#include "evenkeel/io/internal/checkpoint/tensors.h"

namespace evenkeel::internal {

namespace fs = std::filesystem;

FolderFiles list_files(const std::string& folder) {
  FolderFiles found;
  try {
    if (!fs::is_directory(folder)) throw ParseError(folder, "", "is not a folder");
    for (auto at = fs::recursive_directory_iterator(folder); at != fs::recursive_directory_iterator(); ++at) {
      const std::string name = at->path().lexically_relative(folder).string();
      if (name == ".git" || name == ".cache") {
        at.disable_recursion_pending();
      } else if (at->is_regular_file()) {
        found.files.push_back(name);
      } else if (at->is_directory() && !at->is_symlink()) {
        found.folders.push_back(name);
      } else {
        throw Unsupported(
            fmt::format("{}: is neither a file nor a folder nor a link to a file; such cannot be copied",
                        at->path().string()));
      }
    }
  } catch (const fs::filesystem_error& error) {
    throw ParseError(folder, "", "cannot be read: " + error.code().message());
  }
  std::ranges::sort(found.files);
  std::ranges::sort(found.folders);
  return found;
}

bool may_be_weights(const std::string& file) {
  constexpr std::array<std::string_view, 5> endings{".safetensors", ".bin", ".pt", ".pth", ".gguf"};
  if (file.ends_with("training_args.bin")) return false;
  return std::ranges::any_of(endings, [&](std::string_view ending) { return file.ends_with(ending); });
}

bool may_speak_of_quantization(const std::string& file) {
  return file.find("quant") != std::string::npos && file.ends_with(".json") && !file.ends_with(index_ending);
}

}  // namespace evenkeel::internal
