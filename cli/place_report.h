// The results of `evenkeel place`, for people and for programs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/verdict_report.h"
#include "evenkeel/placement/copy_choice.h"
#include "evenkeel/placement/place.h"

namespace evenkeel::cli {

// The quality measured on one recording, and the name of its file.
struct JudgedRecording {
  std::string file;
  RecordingQuality quality;
};

struct PlaceReport {
  const PlaceOptions& options;
  const PlaceResult& result;
  const Topology& topology;
  int num_layers = 0;
  const LayerNumbers& layers;  // of the model, where they are known
  int num_experts = 0;
  std::int64_t assignments = 0;                      // of the profile, all layers together
  std::string output;                                // path of what was written, or nothing
  std::vector<JudgedRecording> per_recording = {};   // of several that it was made from
  std::vector<JudgedRecording> judged = {};          // of others
  std::optional<CopyChoice> copies = {};             // where the number of copies was to be chosen
  std::optional<VerdictReport> verdict = {};         // on what it was made from, where a time model was given
  std::optional<VerdictReport> judged_verdict = {};  // on the others
};

void print_json(const PlaceReport& report);
void print_table(const PlaceReport& report);

}  // namespace evenkeel::cli
