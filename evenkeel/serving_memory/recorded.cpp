#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "evenkeel/base/error.h"
#include "evenkeel/placement/place.h"
#include "evenkeel/serving_memory/serving.h"

namespace evenkeel {

namespace {

// The rows of the fullest rank over all steps and layers, scaled to the number of assignments in a step of
// `serving`.
std::int64_t fullest_rows(const ServingModel& serving, std::span<const RoutingProfile> steps,
                          const Topology& topology, const Placement& placement) {
  double most = 1;
  for (const RoutingProfile& step : steps)
    most = std::max(most, placement_quality(step, topology, placement).max_over_mean_worst);
  const double mean =
      static_cast<double>(serving.assignments()) / static_cast<double>(serving.setup().parallel.expert);
  return static_cast<std::int64_t>(std::ceil(most * mean));
}

RoutingProfile sum_of(std::span<const RoutingProfile> steps) {
  RoutingProfile sum = steps.front();
  for (const RoutingProfile& step : steps.subspan(1)) sum.add(step);
  return sum;
}

}  // namespace

std::vector<RoutingCase> recorded_cases(const ServingModel& serving, const std::string& name,
                                        std::span<const RoutingProfile> steps) {
  const std::int64_t experts = serving.model().experts.count;
  if (steps.empty())
    throw InvalidArgument("counts", fmt::format("{} is not divided into steps", name),
                          "counts [steps, layers, experts], a trace, or a server's recording of steps");
  if (steps.front().num_experts() != experts)
    throw InvalidArgument(
        "counts", fmt::format("{} has {} experts", name, steps.front().num_experts()),
        fmt::format("a recording of the model's {} experts; for a trace, set them with convert --num-experts",
                    experts));
  const int ranks = static_cast<int>(serving.setup().parallel.expert);
  const Topology topology = Topology::uniform(1, ranks);
  const Placement contiguous =
      Placement::contiguous(steps.front().num_layers(), static_cast<int>(experts), ranks);
  std::vector<RoutingCase> cases = {
      serving.routing("recorded", fullest_rows(serving, steps, topology, contiguous))};
  if (steps.size() < 2) return cases;
  const auto later = steps.subspan(steps.size() / 2);
  cases.push_back(
      serving.routing("recorded, second half", fullest_rows(serving, later, topology, contiguous)));
  const PlaceResult placed =
      place(sum_of(steps.first(steps.size() / 2)), topology,
            {.redundant_experts = static_cast<int>(serving.setup().redundant_experts)});
  cases.push_back(serving.routing("second half, placed by the first",
                                  fullest_rows(serving, later, topology, placed.placement)));
  return cases;
}

}  // namespace evenkeel
