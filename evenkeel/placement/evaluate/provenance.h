// What a placement's file records about its source: digests of the recordings that it was made from, so that
// evaluation recognises them, and its quality on held-out data.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "evenkeel/placement/evaluate/hold_out.h"
#include "evenkeel/routing/recording.h"

namespace evenkeel {

// A hash of a recording's loads, layers and experts; independent of the file format.
std::string digest_of(const RoutingProfile& profile);
std::vector<std::string> digests_of(std::span<const Recording> recordings);

// `recordings_digest`; with held-out data also `held_out_max_over_mean_before` and `held_out_max_over_mean`.
std::map<std::string, std::string> provenance_of(std::span<const Recording> recordings,
                                                 const std::optional<HeldOut>& held_out);
// The digests in a placement's provenance; empty if it has none.
std::vector<std::string> digests_in(const std::map<std::string, std::string>& provenance);

}  // namespace evenkeel
