// Decides whether moving to a placement pays, and whether the recordings are enough to tell.
//
// Gain      what a step saves: max/mean before minus max/mean after, averaged over layers. Multiplied by the
//           time of a step at max/mean 1, it is in seconds. The worst layer is not used, since the worst of
//           many is mostly chance.
// Bounds    99 % of the time the gain is between its bounds (blocks.h). If the placement is the best of n,
//           picked on the same data, its bounds are wider: each is wrong with a probability of 0.5 % / n.
// Rule      A placement pays if the lower bound, over the horizon, exceeds the cost of the move. It does not
//           pay if the upper bound, over the horizon, does not exceed that cost. Otherwise, or without
//           blocks, there is not enough data. The gain on the placement's own data is optimistic: the answer
//           there is never "pays" unless data was held out (hold_out.h). It is "does not pay" if even the
//           optimistic gain does not pay.
// Unknown   If the time of the move, the time of a step or the horizon is not known, the move counts as free
//           and "pays" becomes "depends". Where nothing moves, "pays" still needs a lower bound above 0.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "evenkeel/placement/evaluate/blocks.h"
#include "evenkeel/placement/evaluate/evaluate.h"

namespace evenkeel {

// Whether the placement was made from the recordings of the verdict.
enum class JudgedData { made_from, not_made_from };
// "the data it was made from", "data it was not made from".
const char* name_of(JudgedData data);

struct Verdict {
  enum class Answer { pays, does_not_pay, depends, not_enough_data };
  std::string placement = {};  // the names of both placements
  std::string against = {};
  Answer answer = Answer::not_enough_data;
  // Mean over blocks; without blocks over recordings, by step where steps are known.
  double max_over_mean_before = 1;
  double max_over_mean_after = 1;
  int better_on = 0;  // number of recordings on which the placement is better
  int recordings = 0;
  bool of_steps = false;  // a recording has steps; they count if there are no blocks
  std::optional<double> step_ms_before = {};
  std::optional<double> step_ms_after = {};
  Move move = {};
  std::optional<double> break_even_steps = {};  // after this many steps the move has paid for itself
  std::optional<Gain> gain = {};                // in max/mean; nothing without blocks
  // If there is not enough data: how many tokens of such recordings would bound the gain closely enough.
  std::optional<std::int64_t> tokens_needed = {};
  // Nothing if the placement does not state what it was made from.
  std::optional<JudgedData> measured_on = {};
  std::string sentence = {};
  std::vector<std::string> notes = {};  // what the step model assumes
  StepModel model = {};                 // the basis of the times
};

// "pays", "does not pay", "depends", "not_enough_data".
const char* name_of(Verdict::Answer answer);

// The evidence behind a verdict's figures.
struct Evidence {
  std::optional<Gain> gain = {};  // from blocks
  std::string why_no_gain = {};   // what is missing if there is no gain
  std::optional<JudgedData> measured_on = {};
  bool held_out = false;        // each block was judged with a placement not made from it
  double tokens = 0;            // recorded tokens
  bool are_tokens = true;       // false: `tokens` counts assignments of a layer, because top-k is not known
  double times_for_blocks = 1;  // how many times the recorded tokens would form blocks
};

// Judgements of the same recordings, in the same order. `horizon`: how many steps the placement will serve.
// Throws InvalidArgument if there is no recording.
Verdict verdict_of(std::span<const RecordingJudgement> before, std::span<const RecordingJudgement> after,
                   const Evidence& evidence, const Move& move, const StepModel& model, int num_layers,
                   int num_ranks, std::optional<double> horizon);

// Options of a verdict on judged placements.
struct VerdictOptions {
  std::optional<double> horizon = {};
  int picked_from = 1;    // this placement was the most level of so many
  bool held_out = false;  // JudgedPlacement::blocks come from hold_out()
};
// As above for two placements judged on these recordings; computes the move between them.
Verdict verdict_of(std::span<const Recording> recordings, const JudgedPlacement& before,
                   const JudgedPlacement& after, const StepModel& model, int num_ranks,
                   const VerdictOptions& options);

// All placements judged on recordings, and the verdict on the most level of the given ones.
struct Evaluation {
  std::vector<Recording> recordings;
  std::vector<JudgedPlacement> placements;  // contiguous homes, then the given ones
  JudgedPlacement against;                  // what runs now
  int num_ranks = 0;
  int num_nodes = 1;
  Verdict verdict;
};
// `from` is what runs now; default contiguous homes. Throws as judge() does, and InvalidArgument if there is
// no recording or no placement.
Evaluation evaluate(std::vector<Recording> recordings, std::vector<NamedPlacement> placements,
                    std::optional<NamedPlacement> from, const Topology& topology, const StepModel& model,
                    std::optional<double> horizon);

}  // namespace evenkeel
