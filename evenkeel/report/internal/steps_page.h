// The sections on recordings in the pages of placements: how uneven rank loads are before and after, over a
// whole recording, by step and by layer.
#pragma once

#include <span>
#include <string>

#include "evenkeel/placement/evaluate/evaluate.h"
#include "evenkeel/report/internal/html_page.h"

namespace evenkeel::internal {

struct TwoPlacements {
  const NamedPlacement& before;
  const NamedPlacement& after;
  const Topology& topology;
};

// Adds sections for the first few recordings, filters for their layers and steps, and a note on recordings
// left out.
void add_recordings(Json& page, std::span<const Recording> recordings, const TwoPlacements& placements);
// Adds the traffic between ranks, if it is known before and after.
void add_traffic(Json& page, const PlacementQuality& before, const PlacementQuality& after,
                 const TwoPlacements& placements, const std::string& caption);

}  // namespace evenkeel::internal
