// A slow, literal version of LLEP's Algorithms 2 and 3 that shares no code with the library: two arrays g_a
// and g_p, ranks sorted again for every piece, the loop over ranks as written in the paper.
#pragma once

#include <cstdint>
#include <vector>

#include "tests/balance/cases.h"

namespace evenkeel {

struct OracleSegment {
  int rank;
  std::int64_t begin, end;
  friend bool operator==(const OracleSegment&, const OracleSegment&) = default;
};

struct OraclePlan {
  std::vector<std::vector<OracleSegment>> segments;
  std::vector<std::vector<int>> transfers;  // pairs (expert, receiving rank)
};

// `alpha` and `lambda` are in thousandths.
OraclePlan least_loaded_oracle(const Case& c, std::int64_t alpha, std::int64_t m, std::int64_t lambda);

}  // namespace evenkeel
