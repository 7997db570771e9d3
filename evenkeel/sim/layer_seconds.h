// Predicts the seconds of one layer's step on a machine, phase by phase on every rank.
//
// Order     Counts are exchanged and the plan is made. Then for each chunk: its rows are sent, experts at
//           home are computed, borrowed experts are computed as soon as their weights have arrived, and
//           results go back when the last rank is done. Borrowed weights are sent after the first chunk's
//           rows. They have arrived when the ports of both borrower and lender are done. Backward has the
//           same phases with gradients. At its end, the gradients of borrowed experts go back to their
//           owners.
// Overlap   Only the transfer of weights overlaps with computing, namely with the products of experts at
//           home. A rank that is done waits for the last rank.
// Rates     Products take expert_seconds() for each expert's rows on the rank. Transfers take the time of
//           ExchangeSeconds. Gathering rows for sending and summing rows take time at the rate at which
//           memory is read. The messages and bookkeeping of a chunk take chunk_seconds, and so does the plan.
// Checked   docs/simulation.md compares the predictions with measured steps.
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

// Sizes of an expert and its rows, when sent and when computed.
struct LayerSizes {
  StepExpert expert;
  double row_bytes = 0;
  double sent_weight_bytes = 0;  // bytes of one borrowed expert
};

enum class SimPhase { plan, weights, dispatch, products, borrowed_products, wait, combine, gradients };
inline constexpr std::size_t kSimPhases = 8;
// Seconds of a step by phase, averaged over ranks. The weights phase runs in parallel to other phases. The
// phases except weights add up to the step.
using PhaseSeconds = std::array<double, kSimPhases>;
std::string_view name_of(SimPhase phase);

// One phase of a step on a rank; begin and end are seconds since the layer's step began. The weights phase
// runs in parallel to other phases.
struct PhaseSpan {
  int rank = 0;
  SimPhase phase = SimPhase::plan;
  bool backward = false;
  int chunk = -1;
  double begin = 0, end = 0;
  double bytes = 0;  // bytes that the rank sends; in the weights phase, bytes that it borrows
};

// The traffic and the plan of one chunk.
struct ChunkWork {
  const Traffic& traffic;
  const StepPlan& plan;
  bool recomputed = false;  // true if backward recomputes the chunk first
};

class LayerSeconds {
 public:
  // `topology` must outlive this object. With `nodes`, rows are sent in two levels, first between nodes, then
  // within nodes. With `sums_in_nodes`, results return the same way in reverse.
  LayerSeconds(const LayerSizes& sizes, const Machine& machine, const Topology& topology, Nodes nodes = {},
               bool sums_in_nodes = false);

  // Seconds of one pass. `transfers` lists the weights borrowed for the pass. `spans`, if not null, gets
  // every phase of every rank.
  double forward(std::span<const ChunkWork> chunks, std::span<const Transfer> transfers,
                 const LayerPlacement& homes, std::vector<PhaseSpan>* spans = nullptr);
  // `gradients` is [P, P], the bytes of gradients that go back to owners.
  double backward(std::span<const ChunkWork> chunks, std::span<const Transfer> transfers,
                  std::span<const double> gradients, const LayerPlacement& homes,
                  std::vector<PhaseSpan>* spans = nullptr);

  // [P, P] bytes between each pair of ranks, of both passes since clear().
  std::span<const double> pair_bytes() const { return pair_bytes_; }
  // The bytes by kind of traffic.
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
  // Adds the time that the rank takes to read or write `bytes` bytes of its memory.
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
  std::vector<double> weights_at_;         // [P] seconds until its borrowed weights have arrived
  std::vector<double> weights_take_;       // [P] of those seconds, the ones in which its own port is busy
  std::vector<std::int64_t> borrowed_;     // [P] number of borrowed experts
  std::vector<RankId> senders_;            // for each transfer
  std::vector<double> at_home_, foreign_;  // [P] seconds of products at home and away
  std::vector<double> bytes_, took_;       // [P, P] and [P], for one exchange
  std::vector<std::int64_t> rows_of_;      // [P] rows of one expert
  std::vector<double> pair_bytes_;
  Moved moved_;
  PhaseSeconds parts_{};
  bool is_backward_ = false;
  int chunk_ = -1;
  std::vector<PhaseSpan>* spans_ = nullptr;
};

}  // namespace evenkeel
