// The routing in one file. Profiles and placements are made from it, and placements are judged on it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "evenkeel/routing/layer_numbers.h"
#include "evenkeel/routing/profile.h"
#include "evenkeel/routing/trace.h"

namespace evenkeel {

struct Recording {
  // The number of parts into which a recording is cut to estimate random variation
  // (placement/evaluate/blocks.h).
  static constexpr int num_blocks = 20;

  std::string name;  // path of its file, for messages
  RoutingProfile profile = {};
  std::vector<RoutingProfile> steps = {};  // only if the file separates its steps; without transitions
  bool steps_are_windows = false;          // steps are windows of tokens that the caller asked for
  // Present only if steps are kept and the trace has at least num_blocks sequences. Then there are num_blocks
  // parts, in order, made of whole sequences in nearly equal numbers. Without transitions.
  std::vector<RoutingProfile> sequence_blocks = {};
  std::vector<std::string> notes = {};  // where the reading departs from the file's content
  std::string kind = {};                // "trace", "profile", "loads", "counts", "recording", "statistics"
  std::string format = {};              // "safetensors", "npz", "npy", "json", "csv", "sglang", ...
  std::string axes = {};                // for arrays without names: how their dimensions were interpreted
  std::shared_ptr<TraceReader> trace = {};  // null if the file has only counts
  // Present only for the loads of one step: [ranks, E] by source rank, and the number of ranks in the file.
  std::vector<std::int64_t> by_source = {};
  std::optional<int> num_ranks = {};

  bool is_trace() const { return trace != nullptr; }
  int num_experts() const { return trace ? trace->info().num_experts : profile.num_experts(); }
  // The layer of the model that each row belongs to, if known.
  const LayerNumbers& layers() const { return trace ? trace->info().layers : profile.layers(); }
  NumberedRows rows() const {
    return {name, layers(), trace ? trace->info().num_layers : profile.num_layers()};
  }
  // "layers 3-60 of 256 experts"
  std::string shape() const {
    return described(layers(), rows().num_rows) + " of " + std::to_string(num_experts()) + " experts";
  }
  // True if both have the same numbers of layers and experts, and the same layer numbers where both know
  // theirs.
  bool is_like(const Recording& other) const {
    const bool numbered = layers().known() && other.layers().known();
    return rows().num_rows == other.rows().num_rows && num_experts() == other.num_experts() &&
           (!numbered || layers() == other.layers());
  }
};

}  // namespace evenkeel
