// Whether moving to a placement pays, and whether the recordings are enough to say so.
//
// Gain      what a step saves: max/mean before less max/mean after, in the mean of layers; times what a step
//           takes at max/mean 1 these are seconds. Never the worst layer's: the worst of many is chance.
// Bounds    99 % of the time the gain is between its bounds (blocks.h). The best of n placements was picked
//           on the same data, and its bounds are wider: 0.5 % / n each.
// Rule      A placement pays where the lower bound, over the horizon, is above the move; it does not where
//           the upper bound is not; else there is not enough data. Without blocks nothing bounds the gain,
//           and there is not enough data. On what the placement was made from, its gain is optimistic: it
//           never pays there, unless it was held out (hold_out.h), and does not where even so it would not.
// Unknown   Where the move, a step or the horizon is not known, 0 stands for the move, and "pays" is
//           "depends". Nothing to move needs a lower bound above 0 too.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "evenkeel/placement/evaluate/blocks.h"
#include "evenkeel/placement/evaluate/evaluate.h"

namespace evenkeel {

// The recordings that a verdict is about, as the placement knows them.
enum class JudgedData { made_from, not_made_from };
// "the data it was made from", "data it was not made from".
const char* name_of(JudgedData data);

struct Verdict {
  enum class Answer { pays, does_not_pay, depends, not_enough_data };
  std::string placement = {};  // their names
  std::string against = {};
  Answer answer = Answer::not_enough_data;
  // Mean over blocks; where there are none over recordings, by step where steps are known.
  double max_over_mean_before = 1;
  double max_over_mean_after = 1;
  int better_on = 0;  // recordings
  int recordings = 0;
  bool of_steps = false;  // of a recording at least, where there are no blocks
  std::optional<double> step_ms_before = {};
  std::optional<double> step_ms_after = {};
  Move move = {};
  std::optional<double> break_even_steps = {};  // after so many the move has paid for itself
  std::optional<Gain> gain = {};                // in max/mean; nothing where there are no blocks
  // Tokens of such recordings that would bound the gain closely enough, where there is not enough data.
  std::optional<std::int64_t> tokens_needed = {};
  std::optional<JudgedData> measured_on =
      {};  // nothing where the placement does not say what it is made from
  std::string sentence = {};
  std::vector<std::string> notes = {};  // what the step model assumes
  StepModel model = {};                 // that says what is known
};

// "pays", "does not pay", "depends", "not_enough_data".
const char* name_of(Verdict::Answer answer);

// What stands behind the figures of a verdict.
struct Evidence {
  std::optional<Gain> gain = {};  // of blocks
  std::string why_no_gain = {};   // what is missing, where there is none
  std::optional<JudgedData> measured_on = {};
  bool held_out = false;        // each block was judged by a placement that it had no part in
  double tokens = 0;            // that were recorded
  bool are_tokens = true;       // else assignments of a layer: nobody says how many a token makes
  double times_for_blocks = 1;  // as many tokens would make blocks
};

// Judgements of the same recordings in the same order. `horizon`: how many steps the placement will serve.
// Throws InvalidArgument where there is no recording.
Verdict verdict_of(std::span<const RecordingJudgement> before, std::span<const RecordingJudgement> after,
                   const Evidence& evidence, const Move& move, const StepModel& model, int num_layers,
                   int num_ranks, std::optional<double> horizon);

// The circumstances of a verdict on judged placements.
struct VerdictOptions {
  std::optional<double> horizon = {};
  int picked_from = 1;    // placements, of which this one is the most level
  bool held_out = false;  // JudgedPlacement::blocks are those of hold_out()
};
// As above of two placements that were judged on these recordings, with the move between them.
Verdict verdict_of(std::span<const Recording> recordings, const JudgedPlacement& before,
                   const JudgedPlacement& after, const StepModel& model, int num_ranks,
                   const VerdictOptions& options);

// Placements on recordings, and the verdict on the most level of those that were given.
struct Evaluation {
  std::vector<Recording> recordings;
  std::vector<JudgedPlacement> placements;  // contiguous homes, then those that were given
  JudgedPlacement against;                  // what runs now
  int num_ranks = 0;
  int num_nodes = 1;
  Verdict verdict;
};
// `from`: what runs now, else contiguous homes. Throws as judge() does, and InvalidArgument where there is
// no recording or no placement.
Evaluation evaluate(std::vector<Recording> recordings, std::vector<NamedPlacement> placements,
                    std::optional<NamedPlacement> from, const Topology& topology, const StepModel& model,
                    std::optional<double> horizon);

}  // namespace evenkeel
