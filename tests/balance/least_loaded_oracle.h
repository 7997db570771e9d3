// A slow, literal reading of LLEP's Algorithms 2 and 3, sharing no code with the library: two arrays g_a and
// g_p, the ranks sorted anew for every piece, the loop over ranks as written.
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
  std::vector<std::vector<int>> transfers;  // expert, to
};

// alpha and lambda in thousandths.
OraclePlan least_loaded_oracle(const Case& c, std::int64_t alpha, std::int64_t m, std::int64_t lambda);

}  // namespace evenkeel
