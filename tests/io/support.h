// Files and bytes for the tests of readers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "evenkeel/io/byte_source.h"
#include "evenkeel/io/read_recording.h"
#include "evenkeel/routing/profile.h"

namespace evenkeel {

// A folder of its own for each test, gone afterwards.
class TempFolder {
 public:
  TempFolder();
  ~TempFolder();
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  std::string operator/(std::string_view name) const { return (path_ / name).string(); }
  std::vector<std::string> names() const;

 private:
  std::filesystem::path path_;
};

// A file of tests/io/data, or another of the repository.
std::string test_data(std::string_view name);
std::string repository_file(std::string_view name);

std::string read_text(const std::string& path);
void write_text(const std::string& path, std::string_view text);

std::vector<std::byte> bytes_of(std::string_view text);
// A file named "f" that is in memory.
ByteSource source_of(std::string_view text);

// For comparing what was counted, where the source says which of the model's layers it is.
inline RoutingProfile profile_in(const ByteSource& source, const ReadOptions& options = {}) {
  return read_recording(source, options).profile;
}

inline RoutingProfile without_numbers(RoutingProfile profile) {
  profile.set_layers({});
  return profile;
}

// A safetensors file with this header, its length in front, and this data behind.
std::string safetensors_text(std::string_view header, std::string_view data = "");
// An npy file of version 1 with this dictionary, and this data behind.
std::string npy_text(std::string_view dictionary, std::string_view data = "");

}  // namespace evenkeel
