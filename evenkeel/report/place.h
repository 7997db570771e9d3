// The result of `evenkeel place`: the placement it made, against what was there before.
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
  std::int64_t assignments = 0;                  // of the profile, all layers together
  std::string output = {};                       // path of what was written, or nothing
  std::vector<NamedQuality> per_recording = {};  // of several that it was made from
  std::map<std::string, double> served = {};     // for SGLang with copies: max/mean by each rule of dispatch
  std::optional<CopyChoice> copies = {};         // where the number of copies was to be chosen
  std::optional<HeldOut> held_out = {};          // where the recordings have blocks
  JudgedPlacing judged = {};
  std::map<std::string, std::string> axes = {};  // how numbers that nobody named were read, by file
};

std::string to_text(const Placing& placing);
std::string to_json(const Placing& placing);
// On the recordings that it was made from, and on others where it was judged on some.
std::string to_html(const Placing& placing, const PlacedRecordings& recordings, const PageOrigin& origin);

}  // namespace evenkeel
