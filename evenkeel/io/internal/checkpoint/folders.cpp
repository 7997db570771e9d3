#include "evenkeel/io/internal/checkpoint/folders.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>

#include "evenkeel/base/error.h"
#include "evenkeel/base/system_limits.h"
#include "evenkeel/io/atomic_file.h"
#include "evenkeel/io/internal/checkpoint/tensors.h"

namespace evenkeel::internal {

namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse(const fs::path& path, const std::string& why, const std::string& allowed = "") {
  throw InvalidArgument("output", fmt::format("{} {}", path.string(), why), allowed);
}

// Absolute, with links in what exists resolved.
fs::path resolved(const std::string& path) {
  std::error_code error;
  fs::path full = fs::weakly_canonical(fs::absolute(path, error), error);
  if (error) refuse(path, "cannot be written: " + error.message());
  if (!full.has_filename()) full = full.parent_path();  // "out/"
  return full;
}

// Only a folder's own file system can rename another into its place.
void require_free(const fs::path& place) {
  struct stat here {};
  if (::lstat(place.c_str(), &here) != 0) return;
  if (!S_ISDIR(here.st_mode))
    refuse(place, "exists and is not a folder", "a folder that is empty or not there yet");
  std::error_code error;
  if (!fs::is_empty(place, error) || error)
    refuse(place, "is not empty", "a folder that is empty or not there yet");
  struct stat above {};
  if (::stat(place.parent_path().c_str(), &above) == 0 &&
      (above.st_dev != here.st_dev || above.st_ino == here.st_ino))
    refuse(place, "is where a file system is mounted", "a new folder inside it");
}

void require_outside(const fs::path& place, const fs::path& input) {
  const auto [in_input, in_place] = std::mismatch(input.begin(), input.end(), place.begin(), place.end());
  if (in_input == input.end()) refuse(place, "is the input or inside it", "a folder elsewhere");
}

}  // namespace

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

int make_folder_like(const char* name, const std::string& other) {
  return ::mkdir(name, mode_of(other).value_or(0) | 0700u) == 0 ? 0 : errno;
}

Unfinished output_folder(const std::string& path, const std::string& input) {
  const fs::path place = resolved(path);
  require_outside(place, resolved(input));
  require_free(place);
  const std::optional<unsigned> there = mode_of(place.string());
  try {
    return Unfinished(place, [&](const char* name) {
      const int error = make_folder_like(name, input);
      if (error == 0 && there) static_cast<void>(::chmod(name, mode_of(name).value_or(0) & (*there | 0700u)));
      return error;
    });
  } catch (const std::system_error& error) {
    refuse(place, "cannot be made: " + describe_errno(error.code().value()));
  }
}

std::vector<std::string> leftovers_of(const Unfinished& folder) {
  std::vector<std::string> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder.place().parent_path(), error)) {
    const std::string name = entry.path().filename().string();
    if (Unfinished::is_beside(folder.place(), name) && entry.path() != folder.beside() &&
        entry.is_directory(error))
      found.push_back(entry.path().string());
  }
  std::ranges::sort(found);
  return found;
}

void commit(Unfinished& folder) {
  flush_folder(folder.beside());
  if (const int error = folder.rename(); error != 0)
    refuse(folder.place(), "cannot be made: " + describe_errno(error));
}

}  // namespace evenkeel::internal
