#include "evenkeel/sim/compare_recordings.h"

#include <fmt/format.h>

#include "evenkeel/base/error.h"

namespace evenkeel {

namespace {

void require_like(const Recording& one, const Recording& other) {
  const bool numbered = one.layers().known() && other.layers().known();
  if (one.rows().num_rows == other.rows().num_rows && one.num_experts() == other.num_experts() &&
      (!numbered || one.layers() == other.layers()))
    return;
  const auto what_it_has = [](const Recording& each) {
    return fmt::format("{} of {} experts", described(each.layers(), each.rows().num_rows),
                       each.num_experts());
  };
  throw InvalidArgument("place_from", fmt::format("{} has {}", other.name, what_it_has(other)),
                        fmt::format("{}, as {} has", what_it_has(one), one.name));
}

// Refuses what would have no effect.
void require_effect(const CompareOptions& options, bool has_place_from, int num_judged) {
  const bool places = std::ranges::any_of(options.methods, &Method::is_placed);
  const auto refuse = [](const char* argument) {
    throw InvalidArgument(argument, "no method that is compared places experts",
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

// Behind each method that is placed the same again, placed anew: "eplb@50".
void add_renewed(int every, std::vector<Method>& methods) {
  std::vector<Method> both;
  for (const Method& method : methods) {
    both.push_back(method);
    if (!method.is_placed()) continue;
    both.push_back(method);
    both.back().name += fmt::format("@{}", every);
    both.back().renews = true;
  }
  methods = std::move(both);
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
  const int experts = first.num_experts();
  const GroupShape shape = group_shape(request.machine.topology.num_ranks(), experts);
  const std::unique_ptr<StepSource> steps = steps_of(recordings, shape, request.cut);
  std::unique_ptr<StepSource> source;
  if (!place_from.empty()) {
    source = steps_of(place_from, shape, request.cut);
    require_like(first, place_from.front());
  }
  constexpr double kMostAssignments = 1e12;  // of a step
  if (request.machine.model && steps->assignments_per_step() > kMostAssignments)
    throw InvalidArgument("recordings",
                          fmt::format("{:g} assignments in a step", steps->assignments_per_step()),
                          "counts of tokens: shares and averages say nothing of sizes, so without a model");
  if (const std::int64_t left = steps->tokens_left_out(); left > 0)
    all.notes.push_back(fmt::format("{} tokens behind the last whole step are left out", left));
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
  for (Method& method : options.methods)
    if (request.slots && method.step == Method::Step::slots) method.slots = *request.slots;
  if (request.slots && std::ranges::none_of(options.methods, [](const Method& each) {
        return each.step == Method::Step::slots;
      }))
    throw InvalidArgument("slots", "no method that is compared keeps slots", "a method with slots:S");
  require_effect(options, source != nullptr, steps->num_steps() - options.first_judged);
  if (options.methods.front().name != "ep") {
    if (std::ranges::find(options.methods, "ep", &Method::name) != options.methods.end())
      std::erase_if(options.methods, [](const Method& each) { return each.name == "ep"; });
    options.methods.insert(options.methods.begin(), parse_method("ep"));
  }
  if (request.place_every) add_renewed(*request.place_every, options.methods);
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
