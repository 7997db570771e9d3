#include "tests/io/support.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "evenkeel/io/internal/array_writer.h"

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

std::string array_file(const TempFolder& folder, const std::string& file, const std::string& array,
                       std::vector<std::int64_t> shape, const std::vector<std::int64_t>& values) {
  const FileFormat format = file.ends_with("npy")   ? FileFormat::npy
                            : file.ends_with("npz") ? FileFormat::npz
                                                    : FileFormat::safetensors;
  internal::write_arrays({internal::integers_to_write(array, std::move(shape), values)}, {}, folder / file,
                         format);
  return folder / file;
}

std::vector<std::int32_t> ids_of(TraceReader& trace) {
  std::vector<std::int32_t> ids(
      static_cast<std::size_t>(trace.info().num_tokens * trace.info().assignments_per_token()));
  trace.read_ids({0, trace.info().num_tokens}, ids);
  return ids;
}

std::string safetensors_text(std::string_view header, std::string_view data) {
  std::string text(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) text[i] = static_cast<char>(header.size() >> (8 * i) & 0xff);
  return text.append(header).append(data);
}

std::string safetensors_of(std::span<const FileTensor> tensors,
                           const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::string data;
  for (const FileTensor& each : tensors) {
    header[each.name] = {{"dtype", each.dtype},
                         {"shape", each.shape},
                         {"data_offsets", {data.size(), data.size() + each.data.size()}}};
    data += each.data;
  }
  return safetensors_text(header.dump() + "   ", data);
}

std::string npy_text(std::string_view dictionary, std::string_view data) {
  std::string text("\x93NUMPY\x01\x00", 8);
  text.push_back(static_cast<char>(dictionary.size() & 0xff));
  text.push_back(static_cast<char>(dictionary.size() >> 8));
  return text.append(dictionary).append(data);
}

}  // namespace evenkeel
