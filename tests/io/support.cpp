#include "tests/io/support.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>

namespace evenkeel {

TempFolder::TempFolder() {
  std::string name = (std::filesystem::temp_directory_path() / "evenkeel-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no folder for the test");
  path_ = name;
}

TempFolder::~TempFolder() {
  std::filesystem::remove_all(path_);
}

std::vector<std::string> TempFolder::names() const {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(path_))
    names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

std::string repository_file(std::string_view name) {
  return std::string(EVENKEEL_SOURCE_DIR "/") + std::string(name);
}

std::string test_data(std::string_view name) {
  return repository_file("tests/io/data/") + std::string(name);
}

std::string read_text(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

void write_text(const std::string& path, std::string_view text) {
  std::ofstream(path, std::ios::binary) << text;
}

std::vector<std::byte> bytes_of(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

ByteSource source_of(std::string_view text) {
  return {bytes_of(text), "f"};
}

std::string safetensors_text(std::string_view header, std::string_view data) {
  std::string text(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) text[i] = static_cast<char>(header.size() >> (8 * i) & 0xff);
  return text.append(header).append(data);
}

std::string npy_text(std::string_view dictionary, std::string_view data) {
  std::string text("\x93NUMPY\x01\x00", 8);
  text.push_back(static_cast<char>(dictionary.size() & 0xff));
  text.push_back(static_cast<char>(dictionary.size() >> 8));
  return text.append(dictionary).append(data);
}

}  // namespace evenkeel
