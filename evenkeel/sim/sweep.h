// One comparison for each of several values of a number. It shows over which range each method pays.
//
//   ranks                 the size of nodes is kept; fewer ranks form one node
//   step-tokens, top-k    as in StepCut
//   budget                bytes
//   link                  GB/s between nodes; for a single node, within it
//   slots                 for all methods with slots
//   imbalance-threshold, min-segment   of planners
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "evenkeel/sim/compare_recordings.h"

namespace evenkeel {

struct SweepPoint {
  std::string value;  // as the caller wrote it
  ComparedRecordings compared;
};

// Where a method pays, in the order of values: the first value at which it pays, the last before it stops
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
  std::vector<SweptMethod> methods;  // methods of all points, without ep
  // Which phase of plain EP's step is the largest, and from which value on.
  std::string bottleneck;
};

// `over` is "NAME=VALUE,VALUE,...". Throws InvalidArgument, naming `argument`, for an unknown name, for
// values out of range, and for a machine whose ranks or links cannot be changed; and whatever
// compare_recordings() throws.
Sweep sweep(std::span<const Recording> recordings, std::span<const Recording> place_from,
            const CompareRequest& request, std::string_view over, const std::string& argument = "over",
            const SimProgress& progress = {});

}  // namespace evenkeel
