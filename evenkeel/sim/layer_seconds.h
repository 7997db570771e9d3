// Seconds of one layer's step on a machine, phase by phase on every rank.
//
// Order     First counts and plan. Then for each chunk: its rows travel, home experts are computed, borrowed
//           experts are computed as soon as their weights have arrived, and results go back when the last
//           rank is done. Borrowed weights travel after the first chunk's rows; they arrive when the lender's
//           port is done too. Backward has the same phases with gradients; at its end the gradients of
//           borrowed experts go home.
// Overlap   Only weights in transit overlap with products of home experts. A rank that is done waits for the
//           last one.
// Rates     Products: expert_seconds() of each expert's rows on the rank. Transfers: ExchangeSeconds. Rows
//           gathered for sending or summed: the rate at which memory is read. A chunk's messages and
//           bookkeeping, and the plan: chunk_seconds each.
// Checked   docs/simulation.md gives the distance from measured steps.
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

// Sizes of an expert and its rows, in transit and in products.
struct LayerSizes {
  StepExpert expert;
  double row_bytes = 0;
  double sent_weight_bytes = 0;  // of one borrowed expert
};

enum class SimPhase { plan, weights, dispatch, products, borrowed_products, wait, combine, gradients };
inline constexpr std::size_t kSimPhases = 8;
// Seconds of a step by phase, averaged over ranks. Weights travel in parallel to other phases; the other
// phases add up to the step.
using PhaseSeconds = std::array<double, kSimPhases>;
std::string_view name_of(SimPhase phase);

// One phase of a step on a rank; begin and end are seconds since the layer's step began. Weights are in
// transit in parallel to other phases.
struct PhaseSpan {
  int rank = 0;
  SimPhase phase = SimPhase::plan;
  bool backward = false;
  int chunk = -1;
  double begin = 0, end = 0;
  double bytes = 0;  // bytes that the rank sends, or of weights that it borrows
};

// What one chunk moves and computes.
struct ChunkWork {
  const Traffic& traffic;
  const StepPlan& plan;
  bool recomputed = false;  // backward recomputes it first
};

class LayerSeconds {
 public:
  // `topology` must outlive this. With `nodes`, rows travel in two levels, the second after the first. With
  // `sums_in_nodes` they return the same way, in the opposite order.
  LayerSeconds(const LayerSizes& sizes, const Machine& machine, const Topology& topology, Nodes nodes = {},
               bool sums_in_nodes = false);

  // Seconds of one pass. `transfers` are borrowed for the pass. `spans`, if not null, gets every phase of
  // every rank.
  double forward(std::span<const ChunkWork> chunks, std::span<const Transfer> transfers,
                 const LayerPlacement& homes, std::vector<PhaseSpan>* spans = nullptr);
  // `gradients` is [P, P]: bytes of gradients that go home.
  double backward(std::span<const ChunkWork> chunks, std::span<const Transfer> transfers,
                  std::span<const double> gradients, const LayerPlacement& homes,
                  std::vector<PhaseSpan>* spans = nullptr);

  // [P, P] bytes between each pair of ranks, of both passes since clear().
  std::span<const double> pair_bytes() const { return pair_bytes_; }
  // The same bytes by kind.
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
  // Sum over one rank's row of `pairs`.
  std::int64_t sum_of(std::span<const std::int64_t> pairs, std::size_t rank) const;
  // Adds the time in which the rank reads or writes that many bytes of its memory.
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
  std::vector<double> now_;                // [P] current time
  std::vector<double> weights_at_;         // [P] seconds until its borrowed weights are there
  std::vector<double> weights_take_;       // [P] seconds of these in which its own port is busy
  std::vector<std::int64_t> borrowed_;     // [P] number of borrowed experts
  std::vector<RankId> senders_;            // by transfer
  std::vector<double> at_home_, foreign_;  // [P] seconds of products
  std::vector<double> bytes_, took_;       // of one exchange
  std::vector<std::int64_t> rows_of_;      // [P] rows of one expert
  std::vector<double> pair_bytes_;
  Moved moved_;
  PhaseSeconds parts_{};
  bool is_backward_ = false;
  int chunk_ = -1;
  std::vector<PhaseSpan>* spans_ = nullptr;
};

}  // namespace evenkeel
