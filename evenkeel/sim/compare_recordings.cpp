#include "evenkeel/sim/compare_recordings.h"

#include <fmt/format.h>

#include "evenkeel/base/error.h"

namespace evenkeel {

namespace {

void require_like(const StepSource& one, const StepSource& other) {
  if (one.num_layers() == other.num_layers() && one.num_experts() == other.num_experts()) return;
  throw InvalidArgument(
      "place_from", fmt::format("has {} layers of {} experts", other.num_layers(), other.num_experts()),
      fmt::format("{} layers of {} experts, as what is compared", one.num_layers(), one.num_experts()));
}

std::vector<std::string> names_of(std::span<const Recording> recordings) {
  std::vector<std::string> names;
  for (const Recording& each : recordings) names.push_back(each.name);
  return names;
}

}  // namespace

ComparedRecordings compare_recordings(std::span<const Recording> recordings,
                                      std::span<const Recording> place_from, const CompareRequest& request,
                                      const SimProgress& progress) {
  ComparedRecordings all{
      .machine = request.machine, .recordings = names_of(recordings), .placed_from = names_of(place_from)};
  const Recording& first = recordings.front();
  const int experts = first.trace ? first.trace->info().num_experts : first.profile.num_experts();
  const GroupShape shape = group_shape(request.machine.topology.num_ranks(), experts);
  const std::unique_ptr<StepSource> steps = steps_of(recordings, shape, request.cut);
  std::unique_ptr<StepSource> source;
  if (!place_from.empty()) {
    source = steps_of(place_from, shape, request.cut);
    require_like(*steps, *source);
  }
  const SimSetup setup = sim_setup(request.machine, shape, *steps, first.name, all.notes);
  const Known known{.num_experts = experts,
                    .num_ranks = shape.ranks,
                    .seconds = setup.layer && setup.machine,
                    .unlike_links = setup.planner.links.has_value(),
                    .backward = setup.backward,
                    .budget = setup.budget.has_value()};
  CompareOptions options{
      .methods = request.methods.empty() ? usual_methods(known) : parse_methods(request.methods, known),
      .first_judged = source ? 0 : steps->num_steps() / 2,
      .place_every = request.place_every};
  if (options.methods.front().name != "ep") {
    if (std::ranges::find(options.methods, "ep", &Method::name) != options.methods.end())
      std::erase_if(options.methods, [](const Method& each) { return each.name == "ep"; });
    options.methods.insert(options.methods.begin(), parse_method("ep"));
  }
  all.comparison = compare(*steps, shape, setup, options, source.get(), progress);
  all.summaries = summaries_of(all.comparison, setup.budget);
  all.num_layers = steps->num_layers();
  all.num_experts = experts;
  all.top_k = steps->top_k();
  all.layers = first.layers();
  return all;
}

}  // namespace evenkeel
