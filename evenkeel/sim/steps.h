// The replayed steps: which experts the tokens of every rank chose, layer by layer.
//
// Trace     A step is a batch of whole sequences, or a window of a fixed number of tokens. Its tokens are
//           dealt to the ranks in order, equally many to each.
// Loads     A step is one of the recording's own. The senders are not known, so every expert's load is
//           assumed to come evenly from all ranks.
// Groups    If there are more ranks than experts, the ranks form several expert-parallel groups. Each group
//           is read separately, and has its part of the step's tokens.
// Memory    One step of a trace. Loads are those of the recording.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "evenkeel/plan/counts.h"
#include "evenkeel/routing/recording.h"

namespace evenkeel {

// One layer of one step, for the ranks of one group.
struct LayerTokens {
  int top_k = 1;
  std::vector<std::int64_t> first_token;  // [P + 1] first token of each rank
  std::vector<std::int32_t> experts;      // [tokens, k]; empty if only loads are known
  Counts counts;

  bool has_tokens() const { return !experts.empty(); }
  int num_ranks() const { return counts.num_ranks(); }
  std::int64_t tokens_of(RankId rank) const {
    return first_token[rank.offset() + 1] - first_token[rank.offset()];
  }
  std::int64_t most_tokens() const;
};

struct GroupShape {
  int ranks = 1;   // of one group
  int groups = 1;  // number of groups
};
// The largest groups such that all have equally many ranks and every rank has an expert.
GroupShape group_shape(int num_ranks, int num_experts);

class StepSource {
 public:
  virtual ~StepSource() = default;

  int num_layers() const { return num_layers_; }
  int num_experts() const { return num_experts_; }
  int num_steps() const { return num_steps_; }
  // Experts per token in a layer; empty if only loads are known.
  std::optional<int> top_k() const { return top_k_; }
  // Assignments of a layer in a step, over all ranks; mean over steps and layers.
  double assignments_per_step() const { return assignments_per_step_; }

  // The most tokens of any rank in a step.
  std::int64_t most_tokens() const { return most_tokens_; }
  // For a trace in windows: tokens after the last whole window.
  std::int64_t tokens_left_out() const { return tokens_left_out_; }
  // Number of parts of steps [begin, end) whose routing is independent (placement/evaluate/blocks.h): for a
  // trace its sequences, or 1 if these are not known; otherwise the file's own steps.
  virtual int independent_parts(int begin, int end) const = 0;

  // Selects a step.
  virtual void open(int step) = 0;
  // Reads a layer of the open step, for one group.
  virtual void read(int layer, int group, LayerTokens& tokens) = 0;
  // The routing of steps [begin, end), from which placements are made. Includes transitions if `transitions`
  // is set and tokens are known.
  virtual RoutingProfile profile(int begin, int end, bool transitions) = 0;

 protected:
  int num_layers_ = 0, num_experts_ = 0, num_steps_ = 0;
  std::optional<int> top_k_;
  double assignments_per_step_ = 0;
  std::int64_t most_tokens_ = 0;
  std::int64_t tokens_left_out_ = 0;
};

struct StepCut {
  // For a trace: tokens per step, over all ranks. If not given, the trace makes 40 batches of whole
  // sequences, or 40 windows if it has fewer sequences.
  std::optional<std::int64_t> tokens = {};
  // For a trace: only the first `top_k` of each token's experts count. For loads: the experts per token, from
  // which tokens are counted.
  std::optional<int> top_k = {};
};

// Steps of recordings, one after the other; the recordings must outlive the result. Throws ParseError for a
// recording without assignments. Throws InvalidArgument for recordings that differ in layers or experts, for
// more tokens per step than there are, and for a token option if only loads are known.
std::unique_ptr<StepSource> steps_of(std::span<const Recording> recordings, GroupShape shape,
                                     const StepCut& cut = {});

}  // namespace evenkeel
