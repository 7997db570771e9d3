// The allowed difference between a layer's numbers and the dense fp64 evaluation: 4 u sqrt(K) times the sum
// of the terms' magnitudes. u is the type's unit roundoff. K is the length of the longest sum behind any
// number of the tensor. Gradients of weights use the longest sum of their expert instead.
//
// Magnitudes are propagated through the network to first order. A pre-activation has the magnitude
// sum |W| |x|. Let Gate and Up be the magnitudes of gate and up. Then h = f(gate, up) has the magnitude
// |h| + |df/dgate| Gate + |df/dup| Up. Backward continues in the same way. Derivatives are finite differences
// of f, so that this code shares no formula with the code under test.
#pragma once

#include "tests/layer/moe_case.h"

namespace evenkeel::testing {

// A bound for each number of the dense result.
DenseResult error_bound(const MoeCase& problem, bool backward);

}  // namespace evenkeel::testing
