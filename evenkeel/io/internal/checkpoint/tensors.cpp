#include "evenkeel/io/internal/checkpoint/tensors.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include "evenkeel/io/internal/json.h"

namespace evenkeel::internal {

namespace {

namespace fs = std::filesystem;

// The name of the index, or of model.safetensors.
std::string root_of(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error))
    if (std::string name = entry.path().filename(); name == whole_checkpoint || name.ends_with(index_ending))
      names.push_back(std::move(name));
  std::ranges::sort(names);
  if (names.size() > 1)
    throw parse_error(folder, "", "has both {} and {}; keep only the one that is the model", names[0],
                      names[1]);
  if (names.empty())
    throw parse_error(folder, "",
                      "has neither a file that ends in {} nor {}; a safetensors checkpoint is needed",
                      index_ending, whole_checkpoint);
  return names.front();
}

void read_file(const std::string& folder, const std::string& name, CheckpointTensors& checkpoint) {
  const ByteSource source((fs::path(folder) / name).string());
  SafetensorsHeader header = read_safetensors_header(source);
  require_gapless(header, source);
  const std::size_t file = checkpoint.files.size();
  checkpoint.files.push_back({.name = name, .data_begin = header.data_begin});
  for (SafetensorsTensor& tensor : header.tensors)
    checkpoint.tensors.push_back({.at = std::move(tensor), .file = file});
}

// The files must have exactly the tensors of the index. If a tensor were in two files, one copy might be
// permuted and the other loaded.
void require_as_indexed(const CheckpointTensors& checkpoint, std::map<std::string, std::string> file_of,
                        const std::string& index) {
  for (const StoredTensor& tensor : checkpoint.tensors) {
    const std::string& file = checkpoint.files[tensor.file].name;
    const auto stated = file_of.extract(tensor.at.name);
    if (stated.empty() || stated.mapped() != file)
      throw parse_error(index, "weight_map." + tensor.at.name, "is {}, but {} has this tensor",
                        stated.empty() ? "missing or names another file" : stated.mapped(), file);
  }
  if (!file_of.empty())
    throw parse_error(index, "weight_map." + file_of.begin()->first, "names {}, which has no such tensor",
                      file_of.begin()->second);
}

}  // namespace

std::int64_t num_rows(const SafetensorsTensor& tensor) {
  const auto first = std::ranges::find_if(tensor.shape, [](std::int64_t length) { return length != 1; });
  return first == tensor.shape.end() ? 0 : *first;
}

std::map<std::string, std::string> read_checkpoint_index(const ByteSource& source) {
  const JsonDocument json = read_json(source);
  const JsonField map = JsonField(json, source.name())["weight_map"];
  if (!map->is_object()) map.fail("is not a JSON object");
  std::map<std::string, std::string> files;
  for (const auto& [tensor, file] : map->items()) {
    const std::string name = file.is_string() ? file.get<std::string>() : "";
    if (name.empty() || name == "." || name == ".." || name.find_first_of({"/\0", 2}) != std::string::npos)
      map[tensor].fail("{} is not the name of a file in the same folder", file.dump());
    files.emplace(tensor, name);
  }
  return files;
}

CheckpointTensors read_checkpoint_tensors(const std::string& folder) {
  const std::string root = root_of(folder);
  const std::string index = (fs::path(folder) / root).string();
  const bool whole = root == whole_checkpoint;
  const auto indexed = whole ? std::map<std::string, std::string>() : read_checkpoint_index(index);
  std::set<std::string> names;
  if (whole) names.insert(root);
  for (const auto& [tensor, file] : indexed) names.insert(file);
  CheckpointTensors checkpoint;
  for (const std::string& name : names) read_file(folder, name, checkpoint);
  if (!whole) require_as_indexed(checkpoint, indexed, index);
  return checkpoint;
}

}  // namespace evenkeel::internal
