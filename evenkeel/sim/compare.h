// Compares methods on recorded routing: every step and layer is replayed under each method, on a modelled
// machine.
//
// Data      Placements are made from the steps before `first_judged`; the other steps are replayed. If
//           placements are made from a separate recording, all steps are replayed. If placements and replay
//           use the same steps, the result says so.
// Renewed   With `place_every`, a new placement is made after every `place_every` steps from those steps, as
//           servers do. The experts that move are sent over the links before the next step, and that time is
//           added to the next step.
// Figures   A step's seconds are the sum over its layers; a layer takes the time of its slowest group.
//           max/mean is that of rank loads, averaged over layers. Bytes count the weights and rows sent
//           between ranks.
// Cost      For each method, step, layer and group: one plan, plus O(assignments + P^2).
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

// Results of one method for one step.
struct StepFigures {
  double max_over_mean = 1;     // of rank loads, averaged over layers
  double seconds = 0;           // 0 if the machine is not known
  PhaseSeconds parts{};         // seconds by phase: mean over the ranks of the slowest group
  double bytes_within = 0;      // within nodes; bytes are 0 if the layer's sizes are not known
  double bytes_across = 0;      // between nodes
  std::int64_t rows = 0;        // sent to other ranks in forward
  double weight_bytes = 0;      // the part of the bytes for borrowed weights and their gradients
  double moving_seconds = 0;    // the part of `seconds` for moving experts to new homes
  double moved_bytes = 0;       // bytes of experts that a new placement moved before this step
  std::int64_t transfers = 0;   // weight transfers in all layers
  std::int64_t peak_bytes = 0;  // on the worst rank in the worst layer
  int chunks = 1;               // in forward, in the layer with the most chunks
  double recomputed = 0;        // share of all assignments that backward recomputes
  int layers_as_planned = 0;    // layers in which work moved
  int layers_given_up = 0;      // layers whose plan was dropped because of memory, slots or predicted time
  // Rank loads summed over all layers, divided by their mean: least, median, 95th percentile, most.
  double load_least = 1, load_median = 1, load_p95 = 1, load_most = 1;
};

// One layer in one step, for drawing: the layer and step that are least even under plain EP.
struct PlanPicture {
  int step = 0;
  int layer = 0;                 // row in the recording
  std::vector<std::int64_t> at;  // [P, P] assignments, by computing rank and owning rank
  std::vector<Transfer> transfers;
  std::vector<PhaseSpan> spans;  // empty if the machine is not known
  StepBytes fullest;             // of the fullest rank; empty if the layer's sizes are not known
};

struct MethodResult {
  Method method;
  std::vector<StepFigures> steps;
  // Bytes between each pair of ranks, summed over all steps: [G][P, P] for G groups. Empty if the layer's
  // sizes are not known.
  std::vector<std::vector<double>> pair_bytes;
  // max/mean by layer, averaged over up to 64 runs of consecutive steps: [L][runs].
  std::vector<std::vector<double>> heat;
  PlanPicture picture;
  // Weight bytes of copies over all layers, on the rank that has the most; 0 if the layer's sizes are not
  // known.
  double copy_bytes = 0;
  // The smallest number of tokens per step, over all ranks, from which the method is predicted to stay faster
  // than plain EP with this routing. Empty if it never is, or if times cannot be predicted.
  std::optional<double> break_even_tokens = {};
};

struct CompareOptions {
  std::vector<Method> methods;  // the first is `ep`
  int first_judged = 0;
  std::optional<int> place_every = {};
};

struct Comparison {
  std::vector<MethodResult> methods;
  int first_judged = 0;
  int num_steps = 0;  // number of replayed steps
  std::optional<int> place_every = {};
  bool same_data = false;     // placements were made from the replayed steps
  int independent_parts = 0;  // number of sequences or own steps of the file among the replayed steps
  bool has_bytes = false, has_seconds = false;
  bool backward = false;
  double assignments_per_step = 0;  // in one layer, averaged over the replayed steps
  double tokens_per_step = 0;       // average; counts assignments if top-k is not known
  GroupShape shape;
};

// Called with the number of finished steps and the number of all steps.
using SimProgress = std::function<void(int done, int of)>;

// `place_from` is the recording from which placements are made. Without it, they are made from the steps
// before the first judged one. Throws InvalidArgument for methods that the set-up does not support, and
// whatever place() throws.
Comparison compare(StepSource& steps, const GroupShape& shape, const SimSetup& setup,
                   const CompareOptions& options, StepSource* place_from = nullptr,
                   const SimProgress& progress = {});

}  // namespace evenkeel
