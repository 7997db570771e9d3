// Measures several candidates for the steps of one layer side by side. Ranks are threads, or those of a
// communicator. Each has a layer and an arena for every budget among the candidates.
//
// Step           Forward, and backward if requested.
// Round          All steps of a round use the same batch: the reference, the reference again (the control),
//                then each candidate. The first step rotates from round to round, so that drift favours no
//                candidate. Warm-up rounds are not counted.
// Cores          Threads that share cores compute in turns, one rank per core at a time.
// Critical path  For each phase of forward and of backward, the largest CPU time of any rank; their sum. A
//                step would take this long with one core per rank and no overlap.
// Speed-up       The median over rounds of the reference's critical path / the candidate's, in the same
//                round. The ratio of times is its inverse.
// CPU            The CPU time of all ranks together, instead of the critical path: the total cost of a step.
// Control        The same ratio of the reference to itself.
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
  // The communicator whose ranks take the steps; each rank calls measure() with the same set-up and batches.
  // Null: measure() starts threads.
  Communicator* comm = nullptr;
  std::vector<int> node_of_rank = {};  // if given, bytes between nodes are counted
  bool two_levels = false;             // a row that several ranks of a node want crosses the link once
  bool sum_in_nodes = false;           // with two_levels, it returns as one sum

  // True for the first rank, and for a caller that starts all ranks as threads. Only this caller gets all
  // results.
  bool is_first() const { return comm == nullptr || comm->rank() == RankId(0); }
};

struct ExperimentSetup {
  MoeShape shape;
  LayerPlacement placement;
  const LayerInputs* inputs = nullptr;  // has rows for every batch
  bool backward = false;
  int rounds = 5;
  Candidate reference = plain_ep();
  // Each distinct budget, here or in the reference, takes a layer with its packed weights.
  std::vector<Candidate> candidates = {};
  int warm_ups = 2;        // rounds; skipped if `rounds` is 0
  bool timelines = false;  // records each candidate's last round
  RankPlaces where = {};
};

// Long, since a rank may have to wait for the others' work on a machine with few cores.
inline constexpr double kStudyDeadlineSeconds = 600;

struct CandidateFigures {
  Candidate candidate;
  double critical_ms = 0;
  // Wall-clock time. For threads: from the start of the first rank to the end of the last. For processes: the
  // longest of any rank.
  double wall_ms = 0;
  // Time in which a rank waited for its peers, without copying: for a chunk's counts, its rows and its
  // results. Mean over the ranks, and that of the rank that waited least. A step lasts longer than its
  // slowest rank's work by the latter.
  double wait_ms = 0;
  double least_wait_ms = 0;
  std::array<double, kPhases> phases_ms{};
  double plan_us = 0;  // the planner alone, on the rank where it took longest
  double speedup = 1;  // over the reference
  RoundRatio time;     // relative to the reference
  RoundRatio cpu;      // relative to the reference
  std::vector<std::int64_t> rank_loads;
  Imbalance balance;                     // of rank_loads
  std::vector<std::int64_t> peak_bytes;  // by rank
  // Per step, summed over ranks. Bytes that stay on a rank are not counted.
  std::int64_t dispatch_bytes = 0;
  std::int64_t combine_bytes = 0;
  std::int64_t transfer_bytes = 0;
  // The part of these bytes that crosses nodes, if nodes are known; and the most that one node sends.
  std::int64_t bytes_between_nodes = 0;
  std::int64_t dispatch_bytes_between_nodes = 0;
  std::int64_t transfer_bytes_between_nodes = 0;
  std::int64_t most_bytes_of_a_node = 0;
  std::int64_t transfers = 0;
  StepReason reason = StepReason::as_planned;  // of the forward pass
  int chunks = 0;                              // of the forward pass
  double recomputed_fraction = 0;              // share of assignments recomputed in backward
  std::int64_t least_budget = 0;               // the layer's least budget

  std::int64_t worst_peak_bytes() const;
};

// A candidate's step in the last round.
struct CandidateTimeline {
  std::vector<StepRecord> ranks;
  std::vector<Transfer> transfers;  // of the forward pass
};

struct Figures {
  CandidateFigures reference;
  std::vector<CandidateFigures> candidates;  // the reference's figures for a candidate equal to it
  std::vector<CandidateTimeline> timelines;  // likewise, if requested
  RoundRatio control;
  // If the reference is plain ep: its largest rank load / mean.
  double ideal_speedup() const { return reference.balance.max_over_mean; }
};

// The tensors that a step computed, over all ranks.
struct StepResults {
  Tensor output;       // [tokens, D]
  Tensor grad_hidden;  // [tokens, D]
  std::vector<float> grad_router_weights;
  // f32, laid out like the weights.
  ExpertModel grad_experts;
};

// Arguments: the candidate's index in setup.candidates, its results, and whether the layer promises equal
// bits.
using Inspect = std::function<void(std::size_t candidate, const StepResults& results, bool bitwise)>;
// Called with the number of rounds done and the number of all rounds.
using RoundProgress = std::function<void(int done, int of)>;

// Measures all batches with the same layers. Returns figures by batch, the same on every rank. If given,
// `inspect` is called on the first rank with the results of one extra step of each candidate on each batch.
// Throws BudgetTooSmall if any candidate's budget is too small.
std::vector<Figures> measure(const ExperimentSetup& setup, const std::vector<Batch>& batches,
                             const Inspect& inspect = {}, const RoundProgress& progress = {});
// The same for one batch.
Figures measure(const ExperimentSetup& setup, const Batch& batch, const RoundProgress& progress = {});

// "32 experts, top-4, 256 x 160 swiglu f32"
std::string describe(const MoeShape& shape);

// The next two functions check a set-up before anything large is made. Neither reads its inputs.
//
// require_memory() throws Unsupported, with the bytes needed and the bytes free, if the set-up with `tokens`
// tokens over all ranks cannot fit into this machine's memory. It counts only what is certainly held at one
// time: weights, their packed forms, rows and results. Arenas and scratch need more.
void require_memory(const ExperimentSetup& setup, std::int64_t tokens);
// Throws BudgetTooSmall, as the layers would, if a candidate's budget is below the least for `max_tokens`
// tokens per rank.
void require_budgets(const ExperimentSetup& setup, std::int64_t max_tokens);

}  // namespace evenkeel
