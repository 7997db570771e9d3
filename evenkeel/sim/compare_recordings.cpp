#include "evenkeel/sim/compare_recordings.h"

#include <fmt/format.h>

#include "evenkeel/base/error.h"

namespace evenkeel {

namespace {

// Upper limit for the assignments of a step, used if sizes matter. It is more than any machine can hold.
constexpr double kMostAssignments = 1e12;

// Throws for options that would have no effect.
void require_effect(const CompareOptions& options, bool has_place_from, int num_judged) {
  const bool places = std::ranges::any_of(options.methods, &Method::is_placed);
  const auto refuse = [](const char* argument) {
    throw InvalidArgument(argument, "none of the compared methods places experts",
                          "to leave it out, or a method with eplb:R, moetuner, joint or robust");
  };
  if (has_place_from && !places) refuse("place_from");
  if (!options.place_every) return;
  if (!places) refuse("place_every");
  if (*options.place_every >= num_judged)
    throw InvalidArgument(
        "place_every",
        fmt::format("{}, but the number of steps judged is {}", *options.place_every, num_judged),
        num_judged > 1 ? fmt::format("1..{}", num_judged - 1) : "to leave it out");
}

// Plain EP comes first. If `place_every` is given, each method with a placement is followed by the same
// method with renewed placements ("eplb@50").
std::vector<Method> methods_of(const CompareRequest& request, const Known& known) {
  std::vector<Method> asked =
      request.methods.empty() ? usual_methods(known) : parse_methods(request.methods, known);
  if (request.slots && std::ranges::find(asked, Method::Step::slots, &Method::step) == asked.end())
    throw InvalidArgument("slots", "none of the compared methods has slots",
                          "to leave it out, or a method with slots:S");
  std::vector<Method> methods = {parse_method("ep")};
  for (Method& method : asked) {
    if (method.name == "ep") continue;
    if (request.slots && method.step == Method::Step::slots) method.slots = *request.slots;
    methods.push_back(method);
    if (!request.place_every || !method.is_placed()) continue;
    method.name += fmt::format("@{}", *request.place_every);
    method.renews = true;
    methods.push_back(method);
  }
  return methods;
}

std::vector<std::string> names_of(std::span<const Recording> recordings) {
  std::vector<std::string> names;
  for (const Recording& each : recordings) names.push_back(each.name);
  return names;
}

}  // namespace

const MethodSummary* ComparedRecordings::summary_of(const std::string& method) const {
  const auto found = std::ranges::find_if(
      comparison.methods, [&](const MethodResult& each) { return each.method.name == method; });
  return found == comparison.methods.end()
             ? nullptr
             : &summaries[static_cast<std::size_t>(found - comparison.methods.begin())];
}

ComparedRecordings compare_recordings(std::span<const Recording> recordings,
                                      std::span<const Recording> place_from, const CompareRequest& request,
                                      const SimProgress& progress) {
  ComparedRecordings all{
      .machine = request.machine, .recordings = names_of(recordings), .placed_from = names_of(place_from)};
  const Recording& first = recordings.front();
  const int experts = first.num_experts();
  const GroupShape shape = group_shape(request.machine.topology.num_ranks(), experts);
  const std::unique_ptr<StepSource> steps = steps_of(recordings, shape, request.cut);
  std::unique_ptr<StepSource> source;
  if (!place_from.empty()) source = steps_of(place_from, shape, request.cut);
  if (source && !place_from.front().is_like(first))
    throw InvalidArgument("place_from",
                          fmt::format("{} has {}", place_from.front().name, place_from.front().shape()),
                          fmt::format("{}, as {} has", first.shape(), first.name));
  if (request.machine.model && steps->assignments_per_step() > kMostAssignments)
    throw InvalidArgument(
        "recordings", fmt::format("{:g} assignments in a step", steps->assignments_per_step()),
        fmt::format("at most {:g}; shares and averages work only without a model", kMostAssignments));
  if (const std::int64_t left = steps->tokens_left_out(); left > 0)
    all.notes.push_back(fmt::format("{} tokens after the last whole step are left out", left));
  const SimSetup setup = sim_setup(request.machine, shape, *steps, first.name, all.notes);
  const Known known{
      .num_experts = experts,
      .num_ranks = shape.ranks,
      .seconds = setup.layer && setup.machine,
      .unlike_links = setup.planner.links.has_value(),
      .two_levels = setup.layer && Nodes::make_two_levels(setup.topology.description().node_of_rank),
      .backward = setup.backward,
      .budget = setup.budget.has_value()};
  const CompareOptions options{.methods = methods_of(request, known),
                               .first_judged = source ? 0 : steps->num_steps() / 2,
                               .place_every = request.place_every};
  require_effect(options, source != nullptr, steps->num_steps() - options.first_judged);
  all.comparison = compare(*steps, shape, setup, options, source.get(), progress);
  for (const std::string& name : all.placed_from)
    all.comparison.same_data |= std::ranges::find(all.recordings, name) != all.recordings.end();
  all.summaries = summaries_of(all.comparison, setup.budget);
  all.num_layers = steps->num_layers();
  all.num_experts = experts;
  all.top_k = steps->top_k();
  all.layers = first.layers();
  return all;
}

}  // namespace evenkeel
