// The result of `evenkeel place`: the placement it made, against what was there before.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "evenkeel/placement/copy_choice.h"
#include "evenkeel/placement/evaluate/evaluate.h"
#include "evenkeel/placement/place.h"

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

struct Placing {
  const PlaceOptions& options;
  const PlaceResult& result;
  const Topology& topology;
  std::int64_t assignments = 0;                  // of the profile, all layers together
  std::string output = {};                       // path of what was written, or nothing
  std::vector<NamedQuality> per_recording = {};  // of several that it was made from
  std::vector<NamedQuality> judged = {};         // of others
  std::vector<NamedSteps> steps = {};            // of what it was made from, where files tell steps apart
  std::map<std::string, double> served = {};     // for SGLang with copies: max/mean by each rule of dispatch
  std::optional<CopyChoice> copies = {};         // where the number of copies was to be chosen
  std::optional<Verdict> verdict = {};           // on what it was made from, where a time model was given
  std::optional<Verdict> judged_verdict = {};    // on the others
  std::map<std::string, std::string> axes = {};  // how numbers that nobody named were read, by file
};

std::string to_text(const Placing& placing);
std::string to_json(const Placing& placing);

}  // namespace evenkeel
