// Reports `evenkeel place`: the placement it made, compared with the one before.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "evenkeel/placement/copy_choice.h"
#include "evenkeel/placement/evaluate/judge_placed.h"
#include "evenkeel/placement/place.h"
#include "evenkeel/report/html.h"

namespace evenkeel {

struct Placing {
  const PlaceOptions& options;
  const PlaceResult& result;
  const Topology& topology;
  std::int64_t assignments = 0;                  // of the profile, over all layers
  std::string output = {};                       // path of the written file; empty if none
  std::vector<NamedQuality> per_recording = {};  // if it was made from several recordings
  std::map<std::string, double> served = {};     // for SGLang with copies: max/mean by each rule of dispatch
  std::optional<CopyChoice> copies = {};         // if the number of copies was to be chosen
  std::optional<HeldOut> held_out = {};          // if the recordings have blocks
  JudgedPlacing judged = {};
  std::map<std::string, std::string> axes = {};  // how unnamed arrays were read, by file
};

std::string to_text(const Placing& placing);
std::string to_json(const Placing& placing);
// The page shows the recordings that the placement was made from, and the others if it was judged on some.
std::string to_html(const Placing& placing, const PlacedRecordings& recordings, const PageOrigin& origin);

}  // namespace evenkeel
