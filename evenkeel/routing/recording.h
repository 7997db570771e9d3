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
  // How many parts it is cut into to estimate random variation (placement/evaluate/blocks.h).
  static constexpr int num_blocks = 20;

  std::string name;  // its file, for messages
  RoutingProfile profile = {};
  std::vector<RoutingProfile> steps = {};  // if the file separates its steps; without transitions
  bool steps_are_windows = false;          // steps are windows of tokens that the caller asked for
  // Only if steps are kept and the trace has at least num_blocks sequences: num_blocks parts of whole
  // sequences, in order, with nearly equal numbers of sequences. Without transitions.
  std::vector<RoutingProfile> sequence_blocks = {};
  std::vector<std::string> notes = {};  // what was read differently from how the file has it
  std::string kind = {};                // "trace", "profile", "loads", "counts", "recording", "statistics"
  std::string format = {};              // "safetensors", "npz", "npy", "json", "csv", "sglang", ...
  std::string axes = {};                // for arrays without names: how their dimensions were read
  std::shared_ptr<TraceReader> trace = {};  // null if the file has only counts
  // Only for the loads of one step: [ranks, E] by source rank, and the number of ranks in the file.
  std::vector<std::int64_t> by_source = {};
  std::optional<int> num_ranks = {};

  bool is_trace() const { return trace != nullptr; }
  int num_experts() const { return trace ? trace->info().num_experts : profile.num_experts(); }
  // Which of the model's layers the rows are, if known.
  const LayerNumbers& layers() const { return trace ? trace->info().layers : profile.layers(); }
  NumberedRows rows() const {
    return {name, layers(), trace ? trace->info().num_layers : profile.num_layers()};
  }
  // "layers 3-60 of 256 experts"
  std::string shape() const {
    return described(layers(), rows().num_rows) + " of " + std::to_string(num_experts()) + " experts";
  }
  // Both have the same numbers of layers and experts, and the same layer numbers if both know theirs.
  bool is_like(const Recording& other) const {
    const bool numbered = layers().known() && other.layers().known();
    return rows().num_rows == other.rows().num_rows && num_experts() == other.num_experts() &&
           (!numbered || layers() == other.layers());
  }
};

}  // namespace evenkeel
