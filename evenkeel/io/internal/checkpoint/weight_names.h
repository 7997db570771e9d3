// The weights of a safetensors checkpoint by name and shape, read only from its headers.
#pragma once

#include <string>
#include <vector>

#include "evenkeel/model/sorted_weights.h"

namespace evenkeel::internal {

// Whether a folder holds a safetensors checkpoint.
bool has_checkpoint(const std::string& folder);

struct CheckpointWeights {
  std::vector<NamedTensor> tensors;
  std::vector<std::string> notes;  // which tensors are not counted as weights
};

// Shapes are those of the unpacked weights: a U8 byte holds two numbers of 4 bits (MXFP4, NVFP4), a packed
// word holds 32 / packed_bits numbers. Quantization scales and tables of ids are left out. Throws ParseError
// as read_checkpoint_tensors() does, and also for a shape that does not match its number of bytes, and for
// weights packed by GPTQ, AWQ or bitsandbytes.
CheckpointWeights read_checkpoint_weights(const std::string& folder, int packed_bits);

}  // namespace evenkeel::internal
