#include "evenkeel/placement/evaluate/provenance.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <iterator>
#include <sstream>

#include "evenkeel/base/hash.h"

namespace evenkeel {

namespace {

constexpr const char* kDigests = "recordings_digest";

}  // namespace

std::string digest_of(const RoutingProfile& profile) {
  Hash hash;
  hash.add(std::int64_t{profile.num_layers()}).add(std::int64_t{profile.num_experts()});
  for (std::int64_t load : profile.loads()) hash.add(load);
  return fmt::format("{:016x}", hash.value());
}

std::vector<std::string> digests_of(std::span<const Recording> recordings) {
  std::vector<std::string> digests;
  for (const Recording& each : recordings) digests.push_back(digest_of(each.profile));
  return digests;
}

std::map<std::string, std::string> provenance_of(std::span<const Recording> recordings,
                                                 const std::optional<HeldOut>& held_out) {
  std::map<std::string, std::string> said = {
      {kDigests, fmt::format("{}", fmt::join(digests_of(recordings), " "))}};
  if (held_out) {
    said["held_out_max_over_mean_before"] = fmt::format("{:.6f}", held_out->mean_before());
    said["held_out_max_over_mean"] = fmt::format("{:.6f}", held_out->mean_after());
  }
  return said;
}

std::vector<std::string> digests_in(const std::map<std::string, std::string>& provenance) {
  const auto found = provenance.find(kDigests);
  if (found == provenance.end()) return {};
  std::istringstream words(found->second);
  return {std::istream_iterator<std::string>(words), {}};
}

}  // namespace evenkeel
