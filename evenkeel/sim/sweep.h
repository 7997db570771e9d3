// One comparison for each of several values of a number: how far each method pays.
//
//   ranks                 nodes stay as large as they are; fewer ranks are one node
//   step-tokens, top-k    as StepCut has them
//   budget                bytes
//   link                  GB/s between nodes, or of a machine of one node within it
//   slots                 of all methods that keep some
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
  std::string value;  // as it was asked for
  ComparedRecordings compared;
};

// How far a method pays, in the order of values: the first at which it does, the last before it stops, and
// the one at which it has stopped.
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
  std::vector<SweptMethod> methods;  // that all points have, ep aside
  // Which part of plain EP's step becomes the largest, and from which value on.
  std::string bottleneck;
};

// `over` is "NAME=VALUE,VALUE,...". Throws InvalidArgument, naming `argument`, for another name, values that
// the number cannot have, or a machine whose ranks or links cannot be told anew; and what
// compare_recordings() throws.
Sweep sweep(std::span<const Recording> recordings, std::span<const Recording> place_from,
            const CompareRequest& request, std::string_view over, const std::string& argument = "over",
            const SimProgress& progress = {});

}  // namespace evenkeel
