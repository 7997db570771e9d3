// Reports `evenkeel place`: the new placement, compared with the one before.
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
  std::int64_t assignments = 0;                  // in the profile, over all layers
  std::string output = {};                       // path of the written file; empty if none
  std::vector<NamedQuality> per_recording = {};  // only if made from several recordings
  std::map<std::string, double> served = {};     // for SGLang with copies: max/mean under each dispatch rule
  std::optional<CopyChoice> copies = {};         // only if the number of copies was left to place()
  std::optional<HeldOut> held_out = {};          // only if the recordings are divided into blocks
  JudgedPlacing judged = {};
  std::map<std::string, std::string> axes = {};  // how unnamed arrays were read, by file
};

std::string to_text(const Placing& placing);
std::string to_json(const Placing& placing);
// The page shows the recordings that the placement was made from. If the placement was judged on other
// recordings, it shows those instead.
std::string to_html(const Placing& placing, const PlacedRecordings& recordings, const PageOrigin& origin);

}  // namespace evenkeel
