// The replayed steps: which experts the tokens of every rank chose, layer by layer.
//
// Trace     A step is a batch of whole sequences, or a window of a fixed number of tokens. Its tokens are
//           dealt to the ranks in order, equally many to each.
// Loads     A step is one of the steps in the recording. The ranks that send are not known, so every expert's
//           load is assumed to come evenly from all ranks.
// Groups    If there are more ranks than experts, the ranks form several expert-parallel groups. Each group
//           is read separately and gets its part of the step's tokens.
// Memory    That of one step of a trace. Loads are already in the recording.
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

// The tokens of one layer in one step, on the ranks of one group.
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
  int ranks = 1;   // in one group
  int groups = 1;  // number of groups
};
// The largest groups for which all groups have equally many ranks and every rank has at least one expert.
GroupShape group_shape(int num_ranks, int num_experts);

class StepSource {
 public:
  virtual ~StepSource() = default;

  int num_layers() const { return num_layers_; }
  int num_experts() const { return num_experts_; }
  int num_steps() const { return num_steps_; }
  // Experts per token in a layer; empty if only loads are known.
  std::optional<int> top_k() const { return top_k_; }
  // The number of assignments in a layer of a step, over all ranks. It is averaged over steps and layers.
  double assignments_per_step() const { return assignments_per_step_; }

  // The number of tokens of the rank that has the most in a step.
  std::int64_t most_tokens() const { return most_tokens_; }
  // For a trace cut into windows, the number of tokens after the last whole window.
  std::int64_t tokens_left_out() const { return tokens_left_out_; }
  // The number of parts of steps [begin, end) whose routing is independent (placement/evaluate/blocks.h). For
  // a trace it is the number of sequences, or 1 if these are not known. Otherwise it is the number of the
  // file's own steps.
  virtual int independent_parts(int begin, int end) const = 0;

  // Selects the step that read() reads.
  virtual void open(int step) = 0;
  // Reads a layer of the open step, for one group.
  virtual void read(int layer, int group, LayerTokens& tokens) = 0;
  // The routing of steps [begin, end), from which placements are made. It has transitions if `transitions` is
  // set and tokens are known.
  virtual RoutingProfile profile(int begin, int end, bool transitions) = 0;

 protected:
  int num_layers_ = 0, num_experts_ = 0, num_steps_ = 0;
  std::optional<int> top_k_;
  double assignments_per_step_ = 0;
  std::int64_t most_tokens_ = 0;
  std::int64_t tokens_left_out_ = 0;
};

struct StepCut {
  // For a trace: the number of tokens in a step, over all ranks. If not given, the trace is cut into 40
  // batches of whole sequences. If it has fewer than 40 sequences, it is cut into 40 windows.
  std::optional<std::int64_t> tokens = {};
  // For a trace: only the first `top_k` experts of each token count. For loads: the number of experts per
  // token, from which the number of tokens is computed.
  std::optional<int> top_k = {};
};

// Steps of recordings, one after the other; the recordings must outlive the result. Throws ParseError for a
// recording without assignments. Throws InvalidArgument for recordings that differ in layers or experts, for
// more tokens per step than the recordings have, and for an option on tokens if only loads are known.
std::unique_ptr<StepSource> steps_of(std::span<const Recording> recordings, GroupShape shape,
                                     const StepCut& cut = {});

}  // namespace evenkeel
