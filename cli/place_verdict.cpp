#include "cli/place_verdict.h"

#include <algorithm>

namespace evenkeel::cli {

namespace {

Placement after_on(const JudgedData& data, const VerdictQuestion& question) {
  return question.placement.paired_with({data.name, data.profile.layers(), data.profile.num_layers()},
                                        "the placement", "--judge");
}

Placement before_on(const JudgedData& data, const VerdictQuestion& question) {
  const RoutingProfile& profile = data.profile;
  if (question.from)
    return question.from->paired_with({data.name, profile.layers(), profile.num_layers()}, question.from_name,
                                      "--from");
  return Placement::contiguous(profile.num_layers(), profile.num_experts(), question.topology.num_ranks());
}

}  // namespace

std::vector<JudgedData> judged_data(const RoutingInputs& inputs, bool are_steps, const std::string& name) {
  if (are_steps) {
    JudgedData whole{.name = name, .profile = inputs.profiles.front(), .steps = inputs.profiles};
    for (const RoutingProfile& step : std::span(inputs.profiles).subspan(1)) whole.profile.add(step);
    return {std::move(whole)};
  }
  std::vector<JudgedData> all;
  for (std::size_t i = 0; i < inputs.profiles.size(); ++i)
    all.push_back({inputs.names[i], inputs.profiles[i], inputs.steps[i]});
  return all;
}

VerdictReport verdict_on(std::span<const JudgedData> recordings, const VerdictQuestion& question) {
  std::vector<RecordingJudgement> before;
  std::vector<RecordingJudgement> after;
  for (const JudgedData& each : recordings) {
    before.push_back(judge(each.profile, each.steps, question.topology, before_on(each, question)));
    after.push_back(judge(each.profile, each.steps, question.topology, after_on(each, question)));
  }
  const JudgedData& widest = *std::ranges::max_element(
      recordings, {}, [](const JudgedData& each) { return each.profile.num_layers(); });
  const Move move = move_between(before_on(widest, question), after_on(widest, question), question.model);
  return {.placement = question.placement_name,
          .against = question.from_name,
          .verdict = verdict_of(before, after, move, question.model, widest.profile.num_layers(),
                                question.topology.num_ranks(), question.horizon),
          .of_steps = any_steps(after)};
}

}  // namespace evenkeel::cli
