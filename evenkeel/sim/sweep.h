// Makes one comparison for each of several values of one setting, to show for which values each method pays.
//
//   ranks                 a node keeps its number of ranks; if there are fewer ranks than that, they form one
//                         node
//   step-tokens, top-k as in StepCut budget bytes link GB/s between nodes; with a single node, GB/s within it
//   slots the number of slots of all methods that have slots imbalance-threshold, min-segment of the planners
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "evenkeel/sim/compare_recordings.h"

namespace evenkeel {

struct SweepPoint {
  std::string value;  // the value as the caller wrote it
  ComparedRecordings compared;
};

// The values at which a method pays, in their order: the first at which it pays, the last before it stops
// paying, and the value at which it no longer pays.
struct SweptMethod {
  std::string name;
  std::optional<std::string> pays_from = {};
  std::optional<std::string> pays_until = {};
  std::optional<std::string> stops_at = {};
  std::string sentence = {};
};

struct Sweep {
  std::string over;
  std::vector<SweepPoint> points;
  std::vector<SweptMethod> methods;  // methods compared at any point, without ep
  // A sentence: which phase of plain EP's step takes the longest, and from which value on.
  std::string bottleneck;
};

// `over` is "NAME=VALUE,VALUE,...". Throws InvalidArgument, naming `argument`, for an unknown name, for
// values out of range, and for a machine whose ranks or links cannot be changed. Also throws what
// compare_recordings() throws.
Sweep sweep(std::span<const Recording> recordings, std::span<const Recording> place_from,
            const CompareRequest& request, std::string_view over, const std::string& argument = "over",
            const SimProgress& progress = {});

}  // namespace evenkeel
