// What `place` says of the placement that it made, against what was there before: by step and by verdict, on
// the recordings that it was made from and on others.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "evenkeel/placement/evaluate/hold_out.h"
#include "evenkeel/placement/evaluate/verdict.h"

namespace evenkeel {

// The quality measured on one recording, and the name of its file.
struct NamedQuality {
  std::string name;
  RecordingQuality quality;
};

// Over the steps of one recording.
struct NamedSteps {
  std::string name;
  StepSpread before;
  StepSpread after;
};

struct PlacedRecordings {
  std::span<const Recording> own;     // that the placement was made from
  std::span<const Recording> others;  // that it was not
  const std::optional<HeldOut>& held_out;
};

struct JudgedPlacing {
  std::vector<NamedSteps> steps = {};     // of its own recordings, where they tell their steps apart
  std::vector<NamedQuality> judged = {};  // on the others
  std::optional<Verdict> verdict = {};    // on its own, by what was held out; where there is a step model
  std::optional<Verdict> judged_verdict = {};  // on the others
};

// Throws as judge() does.
JudgedPlacing judge_placed(const NamedPlacement& before, NamedPlacement after,
                           const PlacedRecordings& recordings, const Topology& topology,
                           const std::optional<StepModel>& model, std::optional<double> horizon);

// What a placement of one recording cannot say of itself, where it is judged on no other; else nothing.
std::string note_of_one_recording(std::size_t num_own, std::size_t num_others);

}  // namespace evenkeel
