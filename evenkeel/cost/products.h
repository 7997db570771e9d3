// Seconds of the products of experts.
//
// Model     An expert's products of m rows take max(m r, g) + (1 - overlap) min(m r, g): r seconds for a row
//           among many, g seconds to read the weights. It is the roofline model (Williams, Waterman and
//           Patterson, 2009) and the part of the shorter time that a machine does not overlap. A product of
//           inner dimension K runs at K / (K + inner_half) of the machine's rate.
// Checked   on published times of 14 shapes of gated experts (tests/cost/published_test.cpp).
#pragma once

#include <cstdint>

#include "evenkeel/cost/machine.h"

namespace evenkeel {

// The forward products of one expert.
struct ExpertWork {
  double elements = 0;  // weights, each a multiply-add for a row
  double outputs = 0;   // numbers that the products give for a row
  double bytes = 0;     // of the weights, as the products read them
};
// `matrices`: 3 where the expert is gated (gate, up, down), else 2 (up, down), without biases.
ExpertWork expert_work(std::int64_t hidden, std::int64_t intermediate, int matrices,
                       std::int64_t element_bytes);

// One row among many.
double row_seconds(const Machine& machine, const ExpertWork& work);
// Reading so many bytes of weights.
double read_seconds(const Machine& machine, double bytes);
// One expert's rows. An average below one row reads that part of the weights.
double expert_seconds(const Machine& machine, const ExpertWork& work, double rows);

}  // namespace evenkeel
