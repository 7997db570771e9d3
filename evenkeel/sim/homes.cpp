#include "evenkeel/sim/homes.h"

#include <algorithm>

#include "evenkeel/base/error.h"

namespace evenkeel {

namespace {

constexpr int kMostParts = 8;

std::vector<RoutingProfile> parts_of(StepSource& steps, int begin, int end) {
  const int parts = std::min(kMostParts, end - begin);
  std::vector<RoutingProfile> profiles;
  for (int i = 0; i < parts; ++i) {
    const int from = begin + (end - begin) * i / parts, to = begin + (end - begin) * (i + 1) / parts;
    profiles.push_back(steps.profile(from, to, false));
  }
  return profiles;
}

}  // namespace

std::vector<LayerPlacement> homes_for(const Method& method, StepSource& steps, int begin, int end,
                                      const Topology& topology) {
  PlaceOptions options{.redundant_experts = method.copies};
  std::vector<RoutingProfile> recordings;
  switch (method.homes) {
    case Method::Homes::contiguous:
      return std::vector<LayerPlacement>(
          static_cast<std::size_t>(steps.num_layers()),
          LayerPlacement::contiguous(steps.num_experts(), topology.num_ranks()));
    case Method::Homes::eplb:
      recordings.push_back(steps.profile(begin, end, false));
      break;
    case Method::Homes::moetuner:
      recordings.push_back(steps.profile(begin, end, true));
      break;
    case Method::Homes::joint:
      options.objective = PlaceOptions::Objective::joint;
      recordings.push_back(steps.profile(begin, end, true));
      break;
    case Method::Homes::robust:
      recordings = parts_of(steps, begin, end);
      break;
  }
  if (std::ranges::all_of(recordings, [](const RoutingProfile& each) {
        return std::ranges::all_of(each.loads(), [](std::int64_t load) { return load == 0; });
      }))
    throw InvalidArgument("recordings", "have no assignments in the steps that placements are made from",
                          "other recordings to place from, or methods without placements");
  const Placement placement = recordings.size() == 1 ? place(recordings.front(), topology, options).placement
                                                     : place(recordings, topology, options).placement;
  std::vector<LayerPlacement> homes;
  for (int layer = 0; layer < placement.num_layers(); ++layer) homes.push_back(placement.layer(layer));
  return homes;
}

}  // namespace evenkeel
