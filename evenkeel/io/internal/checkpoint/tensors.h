// The tensors of an HF safetensors checkpoint: which file holds which, and where in it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "evenkeel/io/byte_source.h"
#include "evenkeel/io/internal/safetensors.h"

namespace evenkeel::internal {

// "model.safetensors.index.json", or another name of which there is one.
inline constexpr const char* index_ending = ".safetensors.index.json";
inline constexpr const char* whole_checkpoint = "model.safetensors";

struct StoredTensor {
  SafetensorsTensor at;
  std::size_t file = 0;
};

// The first length that is not 1: dimensions of 1 may stand before rows. 0 of a single number.
std::int64_t num_rows(const SafetensorsTensor& tensor);

struct WeightFile {
  std::string name;             // in the checkpoint's folder
  std::int64_t data_begin = 0;  // in the file
};

struct CheckpointTensors {
  std::vector<WeightFile> files;
  std::vector<StoredTensor> tensors;
};

// The file of each tensor, as an index has it. Throws ParseError: not an
// index, or a file that is not plainly in the same folder.
std::map<std::string, std::string> read_checkpoint_index(const ByteSource& source);

// Reads the index, if there is one, and the header of every file. Throws ParseError unless the folder has one
// index or model.safetensors; if a tensor is not where the index says, or not in the index.
CheckpointTensors read_checkpoint_tensors(const std::string& folder);

}  // namespace evenkeel::internal
