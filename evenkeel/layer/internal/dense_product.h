// The dense reference's products, in fp64, with loops of its own: what the layer is measured against shares
// no arithmetic with it.
#pragma once

#include <cstdint>
#include <vector>

namespace evenkeel::internal {

// c[M, N] += a[M, K] b[K, N], row-major.
void multiply_dense(std::int64_t M, std::int64_t N, std::int64_t K, const std::vector<double>& a,
                    const std::vector<double>& b, std::vector<double>& c);

}  // namespace evenkeel::internal
