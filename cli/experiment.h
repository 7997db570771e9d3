// One layer, several planners, measured side by side: ranks as threads, each with its layer and its arena.
//
// Step           forward, and backward where asked for.
// Round          Every step of a round sees the same batch: plain ep, plain ep again (the control), then each
//                planner. Where a round begins turns by one step from round to round, so that what drifts
//                favours nobody. Two rounds warm up and are not counted.
// Critical path  For each phase of forward and of backward the largest CPU time of any rank, summed: what a
//                step would take with a core a rank and no overlap.
// Speed-up       The median over rounds of ep's critical path / the planner's, of the same round.
// Control        The same ratio of ep to ep; its spread is half the distance from the 10th to the 90th
//                percentile.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cli/batch.h"
#include "cli/tensors.h"
#include "evenkeel/layer/moe_layer.h"
#include "evenkeel/routing/imbalance.h"

namespace evenkeel::cli {

// The memory that a layer may take, and how it makes do with that.
struct Budget {
  std::int64_t bytes = Arena::kNoBudget;  // of each rank's arena
  MemoryOptions memory;

  bool is_given() const { return bytes != Arena::kNoBudget; }
  // Whether steps may be cut or computed again at all.
  bool cuts() const;
};

// Every batch fits the rows and the placement.
struct ExperimentSetup {
  MoeShape shape;
  LayerPlacement placement;
  const ExpertModel* experts = nullptr;
  const Tensor* hidden = nullptr;       // [tokens, D]
  const Tensor* grad_output = nullptr;  // the same, with backward
  bool backward = false;
  int rounds = 5;
  std::vector<PlannerOptions> planners;  // plain ep comes by itself
  Budget budget = {};                    // of every planner
};

struct PlannerFigures {
  PlannerOptions planner;
  double critical_ms = 0;
  double wall_ms = 0;  // by the clock, from the start of the first rank to the end of the last
  std::array<double, kPhases> phases_ms{};
  double plan_us = 0;  // the planner alone, on the rank where it took longest
  double speedup = 1;
  std::vector<std::int64_t> rank_loads;
  Imbalance balance;                     // of rank_loads
  std::vector<std::int64_t> peak_bytes;  // by rank
  // Of a step, summed over ranks; what stays on a rank does not count.
  std::int64_t dispatch_bytes = 0;
  std::int64_t combine_bytes = 0;
  std::int64_t transfer_bytes = 0;
  std::int64_t transfers = 0;
  int chunks = 0;                  // of the forward pass
  double recomputed_fraction = 0;  // of all assignments: forward was computed again in backward

  std::int64_t worst_peak_bytes() const;
};

struct Figures {
  PlannerFigures ep;
  std::vector<PlannerFigures> planners;  // as asked for; ep's own stand here again if it is among them
  double control_ratio = 1;
  double control_spread = 0;
  std::int64_t least_budget = 0;  // of the layer
  // Plain ep's largest rank load / mean.
  double ideal_speedup() const { return ep.balance.max_over_mean; }
};

// What a step computed, of all ranks.
struct StepResults {
  Tensor output;       // [tokens, D]
  Tensor grad_hidden;  // [tokens, D]
  std::vector<float> grad_router_weights;
  // f32, laid out as the weights are.
  ExpertModel grad_experts;
};

// The planner's place among setup.planners, what its step gave, and whether the layer promises equal bits.
using Inspect = std::function<void(std::size_t planner, const StepResults& results, bool bitwise)>;
// Rounds done of all.
using Progress = std::function<void(int done, int of)>;

// One layer for all batches; figures by batch. `inspect`, if any, is shown one step more of each planner on
// each batch, while no rank works.
std::vector<Figures> measure(const ExperimentSetup& setup, const std::vector<Batch>& batches,
                             const Inspect& inspect = {}, const Progress& progress = {});

}  // namespace evenkeel::cli
