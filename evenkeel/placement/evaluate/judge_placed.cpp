#include "evenkeel/placement/evaluate/judge_placed.h"

#include "evenkeel/placement/evaluate/provenance.h"

namespace evenkeel {

JudgedPlacing judge_placed(const NamedPlacement& before, NamedPlacement after,
                           const PlacedRecordings& recordings, const Topology& topology,
                           const std::optional<StepModel>& model, std::optional<double> horizon) {
  after.made_from = digests_of(recordings.own);
  JudgedPlacing judged;
  const HeldOut held_out = recordings.held_out.value_or(HeldOut{});
  JudgedPlacement was = judge(before, recordings.own, topology, held_out.before);
  JudgedPlacement is = judge(after, recordings.own, topology, held_out.after);
  for (std::size_t i = 0; i < recordings.own.size(); ++i)
    if (was.on[i].steps) judged.steps.push_back({recordings.own[i].name, *was.on[i].steps, *is.on[i].steps});
  const int ranks = topology.num_ranks();
  if (model)
    judged.verdict = verdict_of(recordings.own, was, is, *model, ranks,
                                {.horizon = horizon, .held_out = recordings.held_out.has_value()});
  if (recordings.others.empty()) return judged;
  was = judge(before, recordings.others, topology);
  is = judge(after, recordings.others, topology);
  for (std::size_t i = 0; i < recordings.others.size(); ++i)
    judged.judged.push_back({recordings.others[i].name, {was.on[i].quality, is.on[i].quality}});
  if (model)
    judged.judged_verdict = verdict_of(recordings.others, was, is, *model, ranks, {.horizon = horizon});
  return judged;
}

std::string note_of_one_recording(std::size_t num_own, std::size_t num_others) {
  if (num_own > 1 || num_others > 0) return "";
  return "made from one recording: balance on other traffic is unknown; give more, or judge on others";
}

}  // namespace evenkeel
