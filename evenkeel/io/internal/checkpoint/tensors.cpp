#include "evenkeel/io/internal/checkpoint/tensors.h"

#include <fmt/format.h>

#include <filesystem>
#include <map>
#include <set>
#include <utility>

#include "evenkeel/base/error.h"
#include "evenkeel/io/internal/json.h"

namespace evenkeel::internal {

namespace {

namespace fs = std::filesystem;

bool is_plain_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos &&
         name.find('\0') == std::string::npos;
}

bool is_there(const std::string& folder, const char* name) {
  std::error_code error;
  return fs::exists(fs::path(folder) / name, error);
}

void read_file(const std::string& folder, const std::string& name, CheckpointTensors& checkpoint) {
  const auto source = open_source((fs::path(folder) / name).string());
  SafetensorsHeader header = read_safetensors_header(*source);
  require_gapless(header, *source);
  const std::size_t file = checkpoint.files.size();
  checkpoint.files.push_back({.name = name, .data_begin = header.data_begin});
  for (SafetensorsTensor& tensor : header.tensors)
    checkpoint.tensors.push_back({.at = std::move(tensor), .file = file});
}

// What files hold must be what the index says, neither more nor less: of a tensor that is in two files one
// would be permuted and the other loaded.
void require_as_indexed(const CheckpointTensors& checkpoint, std::map<std::string, std::string> file_of,
                        const std::string& index) {
  for (const StoredTensor& tensor : checkpoint.tensors) {
    const std::string& file = checkpoint.files[tensor.file].name;
    const auto stated = file_of.find(tensor.at.name);
    if (stated == file_of.end())
      throw ParseError(index, "weight_map." + tensor.at.name,
                       fmt::format("is missing or stands for another file, but {} has this tensor", file));
    if (stated->second != file)
      throw ParseError(index, "weight_map." + tensor.at.name,
                       fmt::format("says {}, but {} has this tensor", stated->second, file));
    file_of.erase(stated);
  }
  if (!file_of.empty())
    throw ParseError(index, "weight_map." + file_of.begin()->first,
                     fmt::format("says {}, which has no such tensor", file_of.begin()->second));
}

}  // namespace

std::vector<std::pair<std::string, std::string>> read_checkpoint_index(const ByteSource& source) {
  const JsonDocument json = read_json(source);
  const Json& map = member(json, "weight_map", source.name());
  if (!map.is_object()) throw ParseError(source.name(), "weight_map", "is not a JSON object");
  std::vector<std::pair<std::string, std::string>> files;
  for (const auto& [tensor, file] : map.items()) {
    if (!file.is_string() || !is_plain_name(file.get<std::string>()))
      throw ParseError(source.name(), "weight_map." + tensor,
                       fmt::format("{} is not the name of a file in the same folder", file.dump()));
    files.emplace_back(tensor, file.get<std::string>());
  }
  return files;
}

CheckpointTensors read_checkpoint_tensors(const std::string& folder) {
  const bool indexed = is_there(folder, checkpoint_index);
  if (indexed == is_there(folder, whole_checkpoint))
    throw ParseError(
        folder, "",
        fmt::format("has {} {} {} {}", indexed ? "both" : "neither", checkpoint_index,
                    indexed ? "and" : "nor",
                    indexed ? fmt::format("{}; which is the model cannot be told", whole_checkpoint)
                            : fmt::format("{}; a safetensors checkpoint is needed", whole_checkpoint)));
  CheckpointTensors checkpoint;
  if (!indexed) {
    read_file(folder, whole_checkpoint, checkpoint);
    return checkpoint;
  }
  const std::string index = (fs::path(folder) / checkpoint_index).string();
  const auto indexed_tensors = read_checkpoint_index(*open_source(index));
  std::set<std::string> names;
  for (const auto& [tensor, file] : indexed_tensors) names.insert(file);
  for (const std::string& name : names) read_file(folder, name, checkpoint);
  require_as_indexed(checkpoint, {indexed_tensors.begin(), indexed_tensors.end()}, index);
  return checkpoint;
}

}  // namespace evenkeel::internal
