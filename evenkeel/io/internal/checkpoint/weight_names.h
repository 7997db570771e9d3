// The weights of a safetensors checkpoint by name and shape, from its headers alone.
#pragma once

#include <string>
#include <vector>

#include "evenkeel/model/sorted_weights.h"

namespace evenkeel::internal {

// Whether a folder holds one.
bool has_checkpoint(const std::string& folder);

struct CheckpointWeights {
  std::vector<NamedTensor> tensors;
  std::vector<std::string> notes;  // what is there and is no weight
};

// Shapes are those of the weights: two of 4 bits in a byte (MXFP4, NVFP4), as many of `packed_bits` as there
// are in a packed word of 32. Scales of quantization and tables of ids are left out. Throws ParseError as
// read_checkpoint_tensors() does, for a shape that its bytes do not bear out, and for weights that GPTQ, AWQ
// or bitsandbytes packed.
CheckpointWeights read_checkpoint_weights(const std::string& folder, int packed_bits);

}  // namespace evenkeel::internal
