// Reports `evenkeel profile`: how uneven the expert loads of each layer are, and the loads of the ranks that
// would share them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "evenkeel/routing/imbalance.h"
#include "evenkeel/routing/profile.h"

namespace evenkeel {

struct ProfileReport {
  RoutingProfile profile;
  std::vector<std::string> traces;     // the files that were added up
  std::optional<std::int64_t> tokens;  // empty if a file has only counts
  std::optional<int> ranks;            // number of ranks with contiguous homes
  std::string output;                  // path of the written file; empty if none
  // How unnamed arrays were read, by file.
  std::map<std::string, std::string> axes = {};
};

std::string to_text(const ProfileReport& report);
std::string to_json(const ProfileReport& report);

}  // namespace evenkeel
