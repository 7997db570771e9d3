// The tensors of a Hugging Face safetensors checkpoint, and where each is stored.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "evenkeel/io/byte_source.h"
#include "evenkeel/io/internal/safetensors.h"

namespace evenkeel::internal {

// Ending of "model.safetensors.index.json" and of other names; a folder has only one such file.
inline constexpr const char* index_ending = ".safetensors.index.json";
inline constexpr const char* whole_checkpoint = "model.safetensors";

struct StoredTensor {
  SafetensorsTensor at;
  std::size_t file = 0;
};

// The first length that is not 1, since dimensions of 1 may come before the rows. 0 for a single number.
std::int64_t num_rows(const SafetensorsTensor& tensor);

struct WeightFile {
  std::string name;             // in the checkpoint's folder
  std::int64_t data_begin = 0;  // in the file
};

struct CheckpointTensors {
  std::vector<WeightFile> files;
  std::vector<StoredTensor> tensors;
};

// The file of each tensor, from an index. Throws ParseError if the source is not an index, or names a file
// outside of its folder.
std::map<std::string, std::string> read_checkpoint_index(const ByteSource& source);

// Reads the index, if there is one, and the header of every file. Throws ParseError if the folder does not
// have exactly one index or model.safetensors, or if the index and the files do not have the same tensors.
CheckpointTensors read_checkpoint_tensors(const std::string& folder);

}  // namespace evenkeel::internal
