// The steps that are replayed: which experts the tokens of every rank chose, layer by layer.
//
// Trace     a step is a batch of whole sequences, or a window of so many tokens. Its tokens are dealt to the
//           ranks in order, equally many to each.
// Loads     a step is the recording's own. Who sent what is not known: every expert's load is taken to come
//           from all ranks alike.
// Groups    More ranks than experts are several groups of expert parallelism, side by side. Each is asked
//           for by itself, and has its part of the step's tokens.
// Memory    one step of a trace; loads are those of the recording.
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

// One layer of one step, of the ranks of one group.
struct LayerTokens {
  int top_k = 1;
  std::vector<std::int64_t> first_token;  // [P + 1] of the ranks
  std::vector<std::int32_t> experts;      // [tokens, k]; empty where only loads are known
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
  int groups = 1;  // side by side
};
// The largest groups into which the ranks divide evenly and in which every rank has an expert.
GroupShape group_shape(int num_ranks, int num_experts);

class StepSource {
 public:
  virtual ~StepSource() = default;

  int num_layers() const { return num_layers_; }
  int num_experts() const { return num_experts_; }
  int num_steps() const { return num_steps_; }
  // Of a token in a layer; nothing where only loads are known.
  std::optional<int> top_k() const { return top_k_; }
  // Assignments of a layer in a step, over all ranks, in the mean of steps and layers.
  double assignments_per_step() const { return assignments_per_step_; }

  // The most tokens that a rank brings to a step.
  std::int64_t most_tokens() const { return most_tokens_; }
  // Of a trace in windows, behind the last whole one.
  std::int64_t tokens_left_out() const { return tokens_left_out_; }
  // Parts of steps [begin, end) whose routing does not depend on each other (placement/evaluate/blocks.h):
  // the sequences of a trace that says them, else all of it is one; a file's own steps.
  virtual int independent_parts(int begin, int end) const = 0;

  // Turns to a step.
  virtual void open(int step) = 0;
  // A layer of the open step, of one group.
  virtual void read(int layer, int group, LayerTokens& tokens) = 0;
  // The routing of steps [begin, end), from which placements are made: with transitions where tokens are
  // known and they are wanted.
  virtual RoutingProfile profile(int begin, int end, bool transitions) = 0;

 protected:
  int num_layers_ = 0, num_experts_ = 0, num_steps_ = 0;
  std::optional<int> top_k_;
  double assignments_per_step_ = 0;
  std::int64_t most_tokens_ = 0;
  std::int64_t tokens_left_out_ = 0;
};

struct StepCut {
  // Of a trace: tokens of a step over all ranks. Without it, 40 batches of whole sequences, or where there
  // are fewer sequences as many windows.
  std::optional<std::int64_t> tokens = {};
  // Of a trace: of a token's experts the first so many count. Of loads: how many experts a token has, by
  // which tokens are counted.
  std::optional<int> top_k = {};
};

// Of recordings one behind the other; they must outlive it. Throws ParseError for a recording without
// assignments; InvalidArgument for recordings of unlike layers or experts, more tokens a step than there are,
// and what is said of tokens where only loads are known.
std::unique_ptr<StepSource> steps_of(std::span<const Recording> recordings, GroupShape shape,
                                     const StepCut& cut = {});

}  // namespace evenkeel
