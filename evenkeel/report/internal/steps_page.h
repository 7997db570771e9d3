// What pages of placements show of recordings: how unevenly ranks are loaded before and after, over a whole
// recording, in its steps and by layer.
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

// Sections of the first few recordings, and filters for their layers and steps; a note on those left out.
void add_recordings(Json& page, std::span<const Recording> recordings, const TwoPlacements& placements);
// Who sends to whom, where both know it.
void add_traffic(Json& page, const PlacementQuality& before, const PlacementQuality& after,
                 const TwoPlacements& placements, const std::string& caption);

}  // namespace evenkeel::internal
