// Measures several candidates for the steps of one layer side by side. Ranks are threads, or the ranks of a
// communicator. Each rank has a layer and an arena for every budget among the candidates.
//
// Step           Forward, and backward if requested.
// Round          All steps of a round use the same batch: the reference, the reference again (the control),
//                then each candidate. Each round begins with a different one of these steps in turn, so that
//                drift favours no candidate. Warm-up rounds are not counted.
// Cores          Threads that share cores compute in turns, one rank per core at a time.
// Critical path  The sum, over all phases of forward and backward, of the largest CPU time that any rank
//                takes for the phase. A step would take this long with one core per rank and no overlap.
// Speed-up       The reference's critical path divided by the candidate's in the same round; of these
//                quotients, the median over rounds. The ratio of times is its inverse.
// CPU            The total cost of a step: the CPU time of all ranks together. Its ratio is formed like that
//                of critical paths.
// Control        The same ratio, of the reference to its repetition.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "evenkeel/layer/moe_layer.h"
#include "evenkeel/layer/step_timeline.h"
#include "evenkeel/routing/imbalance.h"
#include "evenkeel/study/batch.h"
#include "evenkeel/study/candidate.h"
#include "evenkeel/study/round_ratio.h"
#include "evenkeel/study/tensors.h"

namespace evenkeel {

// Where an experiment's ranks run.
struct RankPlaces {
  // The communicator whose ranks run the steps. Each rank must call measure() with the same set-up and
  // batches. If null, measure() starts threads.
  Communicator* comm = nullptr;
  std::vector<int> node_of_rank = {};  // if given, bytes between nodes are also counted
  bool two_levels = false;             // a row that several ranks of a node need crosses the link once
  bool sum_in_nodes = false;           // only with two_levels: its results return as one sum

  // True on the first rank, and for a caller whose ranks are threads. Only this caller gets all results.
  bool is_first() const { return comm == nullptr || comm->rank() == RankId(0); }
};

struct ExperimentSetup {
  MoeShape shape;
  LayerPlacement placement;
  const LayerInputs* inputs = nullptr;  // must have rows for every batch
  bool backward = false;
  int rounds = 5;
  Candidate reference = plain_ep();
  // Each distinct budget, including that of the reference, needs a layer with its own packed weights.
  std::vector<Candidate> candidates = {};
  int warm_ups = 2;        // number of rounds; skipped if `rounds` is 0
  bool timelines = false;  // true: records the last round of each candidate
  RankPlaces where = {};
};

// Long, because on a machine with few cores a rank may have to wait for the other ranks' work.
inline constexpr double kStudyDeadlineSeconds = 600;

struct CandidateFigures {
  Candidate candidate;
  double critical_ms = 0;
  // Wall-clock time. For threads: from the start of the first rank to the end of the last. For processes:
  // that of the rank that took longest.
  double wall_ms = 0;
  // Time in which a rank waited for its peers, without copying: for a chunk's counts, rows and results.
  // `wait_ms` is the mean over ranks, `least_wait_ms` that of the rank that waited least. A step takes longer
  // than the work of its slowest rank by `least_wait_ms`.
  double wait_ms = 0;
  double least_wait_ms = 0;
  std::array<double, kPhases> phases_ms{};
  double plan_us = 0;  // the planner alone, on the rank where it took longest
  double speedup = 1;  // compared with the reference
  RoundRatio time;     // relative to the reference
  RoundRatio cpu;      // relative to the reference
  std::vector<std::int64_t> rank_loads;
  Imbalance balance;                     // of rank_loads
  std::vector<std::int64_t> peak_bytes;  // by rank
  // In one step, summed over ranks. Bytes that stay on a rank are not counted.
  std::int64_t dispatch_bytes = 0;
  std::int64_t combine_bytes = 0;
  std::int64_t transfer_bytes = 0;
  // The part of these bytes that is sent between nodes, if nodes are known; and the bytes of the node that
  // sends the most.
  std::int64_t bytes_between_nodes = 0;
  std::int64_t dispatch_bytes_between_nodes = 0;
  std::int64_t transfer_bytes_between_nodes = 0;
  std::int64_t most_bytes_of_a_node = 0;
  std::int64_t transfers = 0;
  StepReason reason = StepReason::as_planned;  // of the forward pass
  int chunks = 0;                              // of the forward pass
  double recomputed_fraction = 0;              // share of all assignments that backward recomputes
  std::int64_t least_budget = 0;               // the layer's least budget

  std::int64_t worst_peak_bytes() const;
};

// A candidate's step, recorded in the last round.
struct CandidateTimeline {
  std::vector<StepRecord> ranks;
  std::vector<Transfer> transfers;  // of the forward pass
};

struct Figures {
  CandidateFigures reference;
  std::vector<CandidateFigures> candidates;  // a candidate that equals the reference has its figures
  std::vector<CandidateTimeline> timelines;  // as `candidates`, if requested
  RoundRatio control;
  // If the reference is plain ep, the speed-up that perfect balance would give: the largest rank load / the
  // mean.
  double ideal_speedup() const { return reference.balance.max_over_mean; }
};

// The tensors that a step computed, joined over all ranks.
struct StepResults {
  Tensor output;       // [tokens, D]
  Tensor grad_hidden;  // [tokens, D]
  std::vector<float> grad_router_weights;
  // f32, in the same layout as the weights.
  ExpertModel grad_experts;
};

// The arguments are the candidate's index in setup.candidates, its results, and whether the layer promises
// equal bits.
using Inspect = std::function<void(std::size_t candidate, const StepResults& results, bool bitwise)>;
// Called with the number of finished rounds and the number of all rounds.
using RoundProgress = std::function<void(int done, int of)>;

// Measures all batches with the same layers. Returns the figures of each batch, the same on every rank. If
// `inspect` is given, each candidate runs one extra step on each batch, and `inspect` is called on the first
// rank with its results. Throws BudgetTooSmall if any candidate's budget is too small.
std::vector<Figures> measure(const ExperimentSetup& setup, const std::vector<Batch>& batches,
                             const Inspect& inspect = {}, const RoundProgress& progress = {});
// Measures one batch in the same way.
Figures measure(const ExperimentSetup& setup, const Batch& batch, const RoundProgress& progress = {});

// "32 experts, top-4, 256 x 160 swiglu f32"
std::string describe(const MoeShape& shape);

// The next two functions check a set-up before anything large is allocated. Neither reads `inputs`.
//
// require_memory() throws Unsupported, with the bytes needed and the bytes free, if the set-up with `tokens`
// tokens over all ranks cannot fit into this machine's memory. It counts only memory that is certainly held
// at the same time: weights, their packed forms, rows and results. Arenas and scratch need more.
void require_memory(const ExperimentSetup& setup, std::int64_t tokens);
// Throws BudgetTooSmall, as the layers would, if a candidate's budget is below the least for `max_tokens`
// tokens per rank.
void require_budgets(const ExperimentSetup& setup, std::int64_t max_tokens);

}  // namespace evenkeel
