// How far a step's results are from the dense fp64 evaluation, and whether they equal one rank's results bit
// for bit.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "evenkeel/study/experiment.h"

namespace evenkeel {

struct Accuracy {
  double max_abs_error = 0;
  // max|error| / max|reference| of the tensor for which it is largest; 0 if both are 0. The tensors are the
  // output and, with backward, the gradients of hidden rows, of router weights, and of gate_up, down and the
  // biases of all experts.
  double max_rel_error = 0;
  // Whether the output has the same bits as that of the same layer on one rank under planner ep. Empty if
  // this machine does not promise equal bits.
  std::optional<bool> bitwise_equal;
  // Hash of the bytes of all tensors named above (base/hash.h); equal if all bits are equal.
  std::uint64_t checksum = 0;
};

struct CheckedFigures {
  Figures figures;
  std::vector<Accuracy> accuracy;  // one for each candidate; empty except on the first rank
};

// Throws Unsupported if a result is not finite, is too far from the dense evaluation, or has other bits
// although equal bits are promised.
CheckedFigures measure_and_check(const ExperimentSetup& setup, const Batch& batch,
                                 const RoundProgress& progress = {});

}  // namespace evenkeel
