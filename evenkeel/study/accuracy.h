// How far a step's results are from the dense fp64 evaluation, and whether their bits are what one rank
// gives.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "evenkeel/study/experiment.h"

namespace evenkeel {

struct Accuracy {
  double max_abs_error = 0;
  // The largest, over tensors, of max|error| / max|reference|; 0 where both are 0. Tensors are the output
  // and, with backward, the gradients of hidden rows, of router weights, and of gate_up, down and the biases
  // of all experts.
  double max_rel_error = 0;
  // Against the same layer on one rank under ep. Nothing where this machine does not promise equal bits.
  std::optional<bool> bitwise_equal;
  // Of the bytes of all these tensors (base/hash.h): equal where all bits are.
  std::uint64_t checksum = 0;
};

struct CheckedFigures {
  Figures figures;
  std::vector<Accuracy> accuracy;  // by candidate; none but on the first rank
};

// Throws Unsupported where a result is no number, or is wrong: far from the dense evaluation, or of other
// bits though equal bits are promised.
CheckedFigures measure_and_check(const ExperimentSetup& setup, const Batch& batch,
                                 const RoundProgress& progress = {});

}  // namespace evenkeel
