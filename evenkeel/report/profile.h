// The result of `evenkeel profile`: how uneven the experts of each layer are, and ranks that would share
// them.
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
  std::vector<std::string> traces;     // what was added up
  std::optional<std::int64_t> tokens;  // none where a file holds counts alone
  std::optional<int> ranks;            // of contiguous homes
  std::string output;                  // path of what was written, or nothing
  // How numbers that nobody named were read, by file.
  std::map<std::string, std::string> axes = {};
};

std::string to_text(const ProfileReport& report);
std::string to_json(const ProfileReport& report);

}  // namespace evenkeel
