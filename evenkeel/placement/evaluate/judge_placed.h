// What `place` reports about its placement in comparison with the one before: by step and by verdict, on the
// recordings that it was made from and on others.
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

// Spread over the steps of one recording.
struct NamedSteps {
  std::string name;
  StepSpread before;
  StepSpread after;
};

struct PlacedRecordings {
  std::span<const Recording> own;     // the placement was made from these
  std::span<const Recording> others;  // the placement was not made from these
  const std::optional<HeldOut>& held_out;
};

struct JudgedPlacing {
  std::vector<NamedSteps> steps = {};          // on its own recordings that have steps
  std::vector<NamedQuality> judged = {};       // on the others
  std::optional<Verdict> verdict = {};         // on its own recordings, by held-out data; needs a step model
  std::optional<Verdict> judged_verdict = {};  // on the others
};

// Throws as judge() does.
JudgedPlacing judge_placed(const NamedPlacement& before, NamedPlacement after,
                           const PlacedRecordings& recordings, const Topology& topology,
                           const std::optional<StepModel>& model, std::optional<double> horizon);

// A warning if the placement comes from one recording and is judged on no other; else empty.
std::string note_of_one_recording(std::size_t num_own, std::size_t num_others);

}  // namespace evenkeel
