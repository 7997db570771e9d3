// What a placement's file says of the recordings that it was made from, so that whoever judges it knows them
// again, and of what it is worth on others.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "evenkeel/placement/evaluate/hold_out.h"
#include "evenkeel/routing/recording.h"

namespace evenkeel {

// Of a recording's loads, layers and experts, in whatever file they are.
std::string digest_of(const RoutingProfile& profile);
std::vector<std::string> digests_of(std::span<const Recording> recordings);

// `recordings_digest`, and of what was held out `held_out_max_over_mean_before` and `held_out_max_over_mean`.
std::map<std::string, std::string> provenance_of(std::span<const Recording> recordings,
                                                 const std::optional<HeldOut>& held_out);
// The digests in it; none where it does not say them.
std::vector<std::string> digests_in(const std::map<std::string, std::string>& provenance);

}  // namespace evenkeel
