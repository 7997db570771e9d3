// The routing of one file: what profiles and placements are made from, and what placements are judged on.
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
  // How many parts it is cut into, to see how far chance goes (placement/evaluate/blocks.h).
  static constexpr int num_blocks = 20;

  std::string name;  // its file, for messages
  RoutingProfile profile = {};
  std::vector<RoutingProfile> steps = {};  // without transitions, where the file tells them apart
  bool steps_are_windows = false;          // of tokens, cut because somebody asked for it
  // Of a trace that says its sequences, where steps are kept: num_blocks parts of whole ones, in order, as
  // equal in number as can be; none where there are fewer. Without transitions.
  std::vector<RoutingProfile> sequence_blocks = {};
  std::vector<std::string> notes = {};  // of what was read otherwise than the file has it
  std::string kind = {};                // "trace", "profile", "loads", "counts", "recording", "statistics"
  std::string format = {};              // "safetensors", "npz", "npy", "json", "csv", "sglang", ...
  std::string axes = {};                // of numbers that nobody named: how they were read
  std::shared_ptr<TraceReader> trace = {};  // the tokens, where they were recorded one by one
  // Of the loads of one step: [ranks, E] by source rank, and how many ranks the file says there are.
  std::vector<std::int64_t> by_source = {};
  std::optional<int> num_ranks = {};

  bool is_trace() const { return trace != nullptr; }
  int num_experts() const { return trace ? trace->info().num_experts : profile.num_experts(); }
  // Which of the model's layers the rows are, where somebody said it.
  const LayerNumbers& layers() const { return trace ? trace->info().layers : profile.layers(); }
  NumberedRows rows() const {
    return {name, layers(), trace ? trace->info().num_layers : profile.num_layers()};
  }
  // "layers 3-60 of 256 experts"
  std::string shape() const {
    return described(layers(), rows().num_rows) + " of " + std::to_string(num_experts()) + " experts";
  }
  // As many layers and experts, and the same layers where both say theirs.
  bool is_like(const Recording& other) const {
    const bool numbered = layers().known() && other.layers().known();
    return rows().num_rows == other.rows().num_rows && num_experts() == other.num_experts() &&
           (!numbered || layers() == other.layers());
  }
};

}  // namespace evenkeel
