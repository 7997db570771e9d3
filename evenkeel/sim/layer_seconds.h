// The seconds of one layer's step on a machine, phase by phase on every rank.
//
// Order     counts and plan; then for each chunk its rows travel, experts at home are computed, borrowed ones
//           as soon as their weights are there, and when the last rank is done results go back. Borrowed
//           weights travel behind the first chunk's rows, and are there when the lender's port is done too.
//           Backward has the same phases with gradients, and at its end those of borrowed experts go home.
// Overlap   weights on their way and products at home; nothing else. A rank that is done waits for the last.
// Rates     products by expert_seconds() of the rows that the rank has of each expert; what travels by
//           ExchangeSeconds; rows that are gathered to be sent or summed up, by the rate at which memory is
//           read; a chunk's messages and bookkeeping, and the plan, chunk_seconds each.
// Checked   docs/simulation.md says how far it is from measured steps.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "evenkeel/cost/links.h"
#include "evenkeel/plan/placement.h"
#include "evenkeel/plan/step_plan.h"
#include "evenkeel/sim/traffic.h"
#include "evenkeel/step/step_seconds.h"

namespace evenkeel {

// An expert and its rows, as they travel and are computed.
struct LayerSizes {
  StepExpert expert;
  double row_bytes = 0;
  double sent_weight_bytes = 0;  // of an expert that is borrowed
};

enum class SimPhase { plan, weights, dispatch, products, borrowed_products, wait, combine, gradients };
inline constexpr std::size_t kSimPhases = 8;
// Seconds of a step by phase, in the mean of ranks. Weights travel beside other phases; the others add up to
// the step.
using PhaseSeconds = std::array<double, kSimPhases>;
std::string_view name_of(SimPhase phase);

// A rank's part of a step, from begin to end in seconds since the layer's step began. Weights are on their
// way beside other phases.
struct PhaseSpan {
  int rank = 0;
  SimPhase phase = SimPhase::plan;
  bool backward = false;
  int chunk = -1;
  double begin = 0, end = 0;
  double bytes = 0;  // of what travels: that the rank sends, of weights that it borrows
};

// What a chunk moves and computes.
struct ChunkWork {
  const Traffic& traffic;
  const StepPlan& plan;
  bool recomputed = false;  // backward computes it again first
};

class LayerSeconds {
 public:
  // The topology must outlive it. With nodes, what travels does so in two levels, the second after the first.
  // With `sums_in_nodes` rows come home the same two ways.
  LayerSeconds(const LayerSizes& sizes, const Machine& machine, const Topology& topology, Nodes nodes = {},
               bool sums_in_nodes = false);

  // Of one pass. `transfers` are borrowed for the pass; `spans`, if any, gets every phase of every rank.
  double forward(std::span<const ChunkWork> chunks, std::span<const Transfer> transfers,
                 const LayerPlacement& homes, std::vector<PhaseSpan>* spans = nullptr);
  // `gradients` [P, P] bytes that go home.
  double backward(std::span<const ChunkWork> chunks, std::span<const Transfer> transfers,
                  std::span<const double> gradients, const LayerPlacement& homes,
                  std::vector<PhaseSpan>* spans = nullptr);

  // Bytes of both passes since clear(), [P, P]: between the ranks of each pair.
  std::span<const double> pair_bytes() const { return pair_bytes_; }
  // Of these, by what they are.
  struct Moved {
    double dispatch = 0, combine = 0, weights = 0;
  };
  const Moved& moved() const { return moved_; }
  const PhaseSeconds& parts() const { return parts_; }
  void clear();

 private:
  double run(std::span<const ChunkWork> chunks, std::span<const Transfer> transfers,
             std::span<const double> gradients, const LayerPlacement& homes);
  void borrow(std::span<const Transfer> transfers);
  void dispatch(const ChunkWork& chunk);
  void send_rows(std::span<const std::int64_t> rows, double of_row);
  void compute(const ChunkWork& chunk, const LayerPlacement& homes);
  void combine(const ChunkWork& chunk);
  void combine_in_nodes(const ChunkWork& chunk);
  void wait_for_all();
  void send(std::span<const double> bytes, SimPhase phase, double& moved);
  // Of a rank's line of pairs, the sum.
  std::int64_t sum_of(std::span<const std::int64_t> pairs, std::size_t rank) const;
  // The rank reads and writes so many bytes of its memory.
  void touch_memory(std::size_t rank, SimPhase phase, double bytes);
  void add_span(std::size_t rank, SimPhase phase, double begin, double end, double bytes = 0);
  double products(double rows, double row_factor, double weight_factor) const;

  LayerSizes sizes_;
  Machine machine_;
  std::size_t ranks_;
  Nodes nodes_;
  bool sums_in_nodes_;
  ExchangeSeconds exchange_;
  double row_seconds_, read_seconds_;
  std::vector<double> now_;                // [P]
  std::vector<double> weights_at_;         // [P] seconds until its borrowed weights are there
  std::vector<double> weights_take_;       // [P] in which its own port is busy with them
  std::vector<std::int64_t> borrowed_;     // [P]
  std::vector<RankId> senders_;            // by transfer
  std::vector<double> at_home_, foreign_;  // [P] seconds of products
  std::vector<double> bytes_, took_;       // of one exchange
  std::vector<std::int64_t> rows_of_;      // [P] of one expert
  std::vector<double> pair_bytes_;
  Moved moved_;
  PhaseSeconds parts_{};
  bool is_backward_ = false;
  int chunk_ = -1;
  std::vector<PhaseSpan>* spans_ = nullptr;
};

}  // namespace evenkeel
