// Forward and backward, tile by tile, with the kernels' own indices: which thread copies what where, which
// lines and descriptors the instructions get, which thread writes which sums. Each stage is copied, then
// multiplied.
#pragma once

#include <cstdint>

#include "tests/compute/ffn_outcome.h"

namespace evenkeel::testing {

struct EmulationOptions {
  bool recompute = false;
  std::uint64_t shuffle = 0;
  int gap = 0;
  DataType gradients = DataType::f32;
};

FfnOutcome run_hopper_tiles(const MoeCase& problem, const EmulationOptions& options);
FfnOutcome run_generic_tiles(const MoeCase& problem, const EmulationOptions& options);

}  // namespace evenkeel::testing
