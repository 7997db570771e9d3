// One layer, several ways to carry out its steps, measured side by side: ranks as threads, or those of a
// communicator, each with a layer and an arena for every budget among the candidates.
//
// Step           forward, and backward where asked for.
// Round          Every step of a round sees the same batch: the reference, the reference again (the control),
//                then each candidate. Where a round begins turns by one step from round to round, so that
//                what drifts favours nobody. Rounds that warm up are not counted.
// Cores          Threads that share cores compute in turns, one rank a core at a time.
// Critical path  For each phase of forward and of backward the largest CPU time of any rank, summed: what a
//                step would take with a core a rank and no overlap.
// Speed-up       The median over rounds of the reference's critical path / the candidate's, of the same
//                round; the ratio of times is that of the inverse.
// CPU            Instead of the critical path, the CPU time of all ranks together: what a step costs, however
//                evenly.
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

// Where an experiment's ranks are.
struct RankPlaces {
  // Whose ranks take the steps, each in a call of measure() with the same set-up and batches; null: threads
  // that are started for it.
  Communicator* comm = nullptr;
  std::vector<int> node_of_rank = {};  // bytes between nodes are counted where it is given
  bool two_levels = false;             // what several ranks of a node want crosses the link to it once
  bool sum_in_nodes = false;           // with two_levels, so do its results

  // Whether the caller has what only one has: it is the first rank, or started all of them.
  bool is_first() const { return comm == nullptr || comm->rank() == RankId(0); }
};

struct ExperimentSetup {
  MoeShape shape;
  LayerPlacement placement;
  const LayerInputs* inputs = nullptr;  // with rows for every batch
  bool backward = false;
  int rounds = 5;
  Candidate reference = plain_ep();
  // Each budget among these and the reference's takes a layer, with its packed weights.
  std::vector<Candidate> candidates = {};
  int warm_ups = 2;        // rounds; none are wanted where only bytes are
  bool timelines = false;  // of each candidate's last round
  RankPlaces where = {};
};

// A rank may well wait for the others' work on a machine with few cores.
inline constexpr double kStudyDeadlineSeconds = 600;

struct CandidateFigures {
  Candidate candidate;
  double critical_ms = 0;
  // By the clock: of threads from the start of the first rank to the end of the last, of processes the
  // longest of any rank.
  double wall_ms = 0;
  // In which a rank waited for its peers, not copying, to know a chunk's counts, to have its rows and to have
  // its results: the mean of the ranks, and of the rank that waited least. By the latter a step is longer
  // than its slowest rank's work.
  double wait_ms = 0;
  double least_wait_ms = 0;
  std::array<double, kPhases> phases_ms{};
  double plan_us = 0;  // the planner alone, on the rank where it took longest
  double speedup = 1;  // over the reference
  RoundRatio time;     // to the reference
  RoundRatio cpu;      // likewise
  std::vector<std::int64_t> rank_loads;
  Imbalance balance;                     // of rank_loads
  std::vector<std::int64_t> peak_bytes;  // by rank
  // Of a step, summed over ranks; what stays on a rank does not count.
  std::int64_t dispatch_bytes = 0;
  std::int64_t combine_bytes = 0;
  std::int64_t transfer_bytes = 0;
  // Of these bytes those between nodes, where nodes are known; and the most of them that one node sends.
  std::int64_t bytes_between_nodes = 0;
  std::int64_t dispatch_bytes_between_nodes = 0;
  std::int64_t transfer_bytes_between_nodes = 0;
  std::int64_t most_bytes_of_a_node = 0;
  std::int64_t transfers = 0;
  StepReason reason = StepReason::as_planned;  // of the forward pass
  int chunks = 0;                              // of the forward pass
  double recomputed_fraction = 0;              // of all assignments: forward was computed again in backward
  std::int64_t least_budget = 0;               // of the layer

  std::int64_t worst_peak_bytes() const;
};

// A candidate's step in the last round.
struct CandidateTimeline {
  std::vector<StepRecord> ranks;
  std::vector<Transfer> transfers;  // of the forward pass
};

struct Figures {
  CandidateFigures reference;
  std::vector<CandidateFigures> candidates;  // those of the reference itself where it is among them
  std::vector<CandidateTimeline> timelines;  // likewise, where asked for
  RoundRatio control;
  // Where the reference is plain ep: its largest rank load / mean.
  double ideal_speedup() const { return reference.balance.max_over_mean; }
};

// The tensors that a step computed, of all ranks.
struct StepResults {
  Tensor output;       // [tokens, D]
  Tensor grad_hidden;  // [tokens, D]
  std::vector<float> grad_router_weights;
  // f32, laid out as the weights are.
  ExpertModel grad_experts;
};

// The candidate's place among setup.candidates, what its step gave, and whether the layer promises equal
// bits.
using Inspect = std::function<void(std::size_t candidate, const StepResults& results, bool bitwise)>;
// Rounds done of all.
using RoundProgress = std::function<void(int done, int of)>;

// The same layers for all batches; figures by batch, the same on every rank. `inspect`, if any, is shown one
// step more of each candidate on each batch, by the first rank. Throws BudgetTooSmall, whatever is measured
// else, where a candidate's budget is.
std::vector<Figures> measure(const ExperimentSetup& setup, const std::vector<Batch>& batches,
                             const Inspect& inspect = {}, const RoundProgress& progress = {});
// Of one batch.
Figures measure(const ExperimentSetup& setup, const Batch& batch, const RoundProgress& progress = {});

// "32 experts, top-4, 256 x 160 swiglu f32"
std::string describe(const MoeShape& shape);

// Before anything large is made; neither reads the set-up's inputs.
//
// Throws Unsupported, with the bytes that are needed and those that there are, where the set-up cannot fit
// into this machine's memory with so many tokens over all ranks. What is counted is held at one time for
// certain: weights, their packed forms, rows and results; arenas and scratch come on top.
void require_memory(const ExperimentSetup& setup, std::int64_t tokens);
// Throws BudgetTooSmall, as the layers would, where a candidate's budget is below the least for up to so many
// tokens a rank.
void require_budgets(const ExperimentSetup& setup, std::int64_t max_tokens);

}  // namespace evenkeel
