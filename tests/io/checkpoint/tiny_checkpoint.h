// Checkpoints of every family with a few bytes per tensor, for tests of permuting. The contents of a folder
// are read without the library.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "evenkeel/plan/placement.h"
#include "tests/io/support.h"

namespace evenkeel {

struct TinyCheckpoint {
  std::string config;               // config.json
  std::vector<FileTensor> tensors;  // in the order of the files
  int num_files = 1;                // 1: model.safetensors without an index
};

// A checkpoint with eight experts per layer. With `stacked`, experts are stacked in one tensor, as newer
// transformers versions can save them. DeepSeek-V3 has a dense layer 0, MoE layers 1 and 2, and layer 3 for
// multi-token prediction. The others have layers 0 and 1; Qwen3's layer 1 is dense.
TinyCheckpoint tiny_checkpoint(const std::string& family, bool stacked = false);
std::vector<std::string> tiny_families();
// The number of MoE layers, without those for multi-token prediction.
int tiny_moe_layers(const std::string& family);

void write_checkpoint(const TinyCheckpoint& checkpoint, const std::string& folder);

// Every tensor of every safetensors file of the folder.
std::map<std::string, FileTensor> read_tensors(const std::string& folder);
// The first bytes of a safetensors file, up to its data.
std::string read_header_bytes(const std::string& path);

// Shuffled experts, equally many per rank. With groups > 1, each group of experts stays together.
Placement shuffled_placement(int layers, int experts, int ranks, unsigned seed, int groups = 1);
// A placement with equally many experts per rank. In layer l, expert e becomes number ids[l][e] if the
// experts of each rank keep their order.
Placement placement_by_ids(const std::vector<std::vector<int>>& ids, int on_rank = 1);

}  // namespace evenkeel
