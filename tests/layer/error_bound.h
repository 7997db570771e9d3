// How far a layer's numbers may be from the dense fp64 evaluation: 4 u sqrt(K) times the sum of the terms'
// magnitudes, u the type's unit roundoff and K the length of the longest sum behind a number: of its tensor,
// and of gradients of weights, of its expert.
//
// Magnitudes are followed through the network to first order: a pre-activation's is sum |W| |x|; that of
// h = f(gate, up) is |h| + |df/dgate| Gate + |df/dup| Up, and so on backward. Derivatives are differences of
// f, so that nothing here shares a formula with what is tested.
#pragma once

#include "tests/layer/moe_case.h"

namespace evenkeel::testing {

// A bound for each number of the dense result.
DenseResult error_bound(const MoeCase& problem, bool backward);

}  // namespace evenkeel::testing
