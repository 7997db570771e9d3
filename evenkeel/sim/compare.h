// What methods would do on recorded routing: every step and layer is replayed under each, on a machine.
//
// Data       steps before `first_judged` are what placements are made from; the others are replayed. Where
//            placements come from a recording of their own, all are. Where both are the same steps, the
//            result says so.
// Renewed    with `place_every` placements are made anew after so many steps, from these steps, as servers
//            do; the experts that move travel over the links before the next step, which takes longer.
// Figures    a step's seconds are the sum over its layers, of each the slowest group's. max/mean is of rank
//            loads, in the mean of layers. Bytes are what passes between ranks, weights and rows.
// Cost       for each method, step, layer and group: a plan, and O(assignments + P^2).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "evenkeel/sim/layer_replay.h"
#include "evenkeel/sim/method.h"
#include "evenkeel/sim/steps.h"

namespace evenkeel {

// One step of one method.
struct StepFigures {
  double max_over_mean = 1;     // of rank loads, mean of layers
  double seconds = 0;           // 0 where the machine is not known
  PhaseSeconds parts{};         // of these, by phase, in the mean of ranks of the slowest group
  double bytes_within = 0;      // nodes; bytes are 0 where the layer is not known
  double bytes_across = 0;      // between nodes
  std::int64_t rows = 0;        // that forward sends to other ranks
  double weight_bytes = 0;      // of both, borrowed weights and their gradients
  double moving_seconds = 0;    // of `seconds`, in which experts moved to new homes
  double moved_bytes = 0;       // of experts that a new placement moved before this step
  std::int64_t transfers = 0;   // of weights, of all layers
  std::int64_t peak_bytes = 0;  // of the worst rank in the worst layer
  int chunks = 1;               // of the layer with the most, forward
  double recomputed = 0;        // the part of all assignments
  int layers_as_planned = 0;    // in which work moved
  int layers_given_up = 0;      // in which it would have moved, but for memory, slots or predicted time
  // Of all layers together, rank loads over their mean: least, median, 95th percentile, most.
  double load_least = 1, load_median = 1, load_p95 = 1, load_most = 1;
};

// One layer's step as a picture: the one that is least even under plain EP.
struct PlanPicture {
  int step = 0;
  int layer = 0;                 // row of the recording
  std::vector<std::int64_t> at;  // [P, P] assignments, by the rank that computes and the owner's
  std::vector<Transfer> transfers;
  std::vector<PhaseSpan> spans;  // where the machine is known
  StepBytes fullest;             // rank; where the layer is known
};

struct MethodResult {
  Method method;
  std::vector<StepFigures> steps;
  // Over all steps: where the layer is known, bytes between the ranks of each pair in all groups, [G][P, P].
  std::vector<std::vector<double>> pair_bytes;
  // max/mean by layer, in up to 64 runs of steps: [L][runs].
  std::vector<std::vector<double>> heat;
  PlanPicture picture;
  // Weights of copies on the rank that has the most, over all layers; where the layer is known.
  double copy_bytes = 0;
  // Tokens of a step over all ranks from which on it is predicted to be faster than plain EP at this routing;
  // nothing where it never is, or nothing predicts it.
  std::optional<double> break_even_tokens = {};
};

struct CompareOptions {
  std::vector<Method> methods;  // of which `ep` is the first
  int first_judged = 0;
  std::optional<int> place_every = {};
};

struct Comparison {
  std::vector<MethodResult> methods;
  int first_judged = 0;
  int num_steps = 0;  // that were replayed
  std::optional<int> place_every = {};
  bool same_data = false;     // placements were made from the steps that were replayed
  int independent_parts = 0;  // of the steps that were replayed: sequences, or a file's own steps
  bool has_bytes = false, has_seconds = false;
  bool backward = false;
  double assignments_per_step = 0;  // of a layer, mean of the steps that were replayed
  double tokens_per_step = 0;       // mean; assignments where nobody says how many a token makes
  GroupShape shape;
};

// Steps done of all.
using SimProgress = std::function<void(int done, int of)>;

// `place_from`: what placements are made from, instead of the steps before the first that is judged. Throws
// InvalidArgument for methods that the set-up cannot carry out, and what place() throws.
Comparison compare(StepSource& steps, const GroupShape& shape, const SimSetup& setup,
                   const CompareOptions& options, StepSource* place_from = nullptr,
                   const SimProgress& progress = {});

}  // namespace evenkeel
