// One layer's steps carried out without computing: the planners, slots and the decision of step/ are the real
// ones; what they move and hold is counted, and what it takes is predicted.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "evenkeel/balance/held_slots.h"
#include "evenkeel/balance/planner.h"
#include "evenkeel/budget/block_table.h"
#include "evenkeel/budget/buffer_bytes.h"
#include "evenkeel/budget/shares.h"
#include "evenkeel/sim/layer_seconds.h"
#include "evenkeel/sim/method.h"
#include "evenkeel/sim/peaks.h"
#include "evenkeel/sim/steps.h"

namespace evenkeel {

// The layer, and the machine that it is on. Without a layer, loads and transfers are all that is known;
// without rates of its links or products, everything but seconds.
struct SimLayer {
  LayerSizes sizes;
  ChunkShape chunk;
};
struct SimSetup {
  Topology topology;  // of one group
  std::optional<SimLayer> layer = {};
  std::optional<Machine> machine = {};
  bool backward = false;
  std::optional<std::int64_t> budget = {};  // of a rank's arena
  std::int64_t most_tokens = 1;             // of a rank in a step
  PlannerOptions planner = {};              // kind aside, what planners are given
  MemoryOptions memory = {};                // its cost is the machine, where that is known
};

struct LayerOutcome {
  StepReason reason = StepReason::as_planned;
  StepPlan plan;
  std::vector<Chunk> chunks;
  std::vector<Transfer> sent;   // weights that travel in a pass
  std::int64_t recomputed = 0;  // assignments that backward computes again
  // Where the layer is known.
  std::int64_t rows = 0;           // that forward sends to other ranks
  std::vector<Peaks> peaks;        // by rank
  std::vector<double> pair_bytes;  // [P, P]
  LayerSeconds::Moved moved;
  // Where the machine is.
  double seconds = 0;
  PhaseSeconds parts{};
  // Where they are asked for.
  std::vector<PhaseSpan> spans;
  StepBytes fullest;  // rank
};

class LayerReplay {
 public:
  // A method's steps in layers of these homes, by layer. `setup` must outlive it. Throws InvalidArgument for
  // a method that this set-up cannot carry out.
  LayerReplay(const SimSetup& setup, const Method& method, std::vector<LayerPlacement> homes);
  LayerReplay(const LayerReplay&) = delete;  // the decider refers to its bytes
  LayerReplay& operator=(const LayerReplay&) = delete;

  // Other homes from now on; what lies in slots is gone.
  void place(std::vector<LayerPlacement> homes);
  const LayerPlacement& homes(int layer) const { return homes_[static_cast<std::size_t>(layer)]; }
  // Carries out a layer of the next step. Valid until the next call.
  const LayerOutcome& run(int layer, const LayerTokens& tokens, bool with_spans = false);

 private:
  // The chunks of a pass, each with its plan and what it moves.
  struct Chunks {
    std::vector<StepPlan> plans;
    std::vector<Traffic> traffic;
    std::vector<RankLoads> loads;
  };
  void take_whole(bool moves, StepDecision& decision) const;
  void decide(Planner& planner, const LayerPlacement& homes, const LayerTokens& tokens,
              StepDecision& decision);
  void decide_rest(const LayerPlacement& homes, const LayerTokens& tokens, const StepDecision& forward);
  BlockTable block_table(const LayerPlacement& homes, const LayerTokens& tokens);
  void count_chunks(const LayerPlacement& homes, const LayerTokens& tokens, const StepDecision& decision,
                    std::int64_t units, Chunks& chunks);
  void carry_out(const LayerPlacement& homes, const LayerTokens& tokens, const StepDecision& decision,
                 std::span<const Transfer> transfers, LayerOutcome& outcome, bool with_spans);
  void time(const LayerPlacement& homes, const StepDecision& decision, std::span<const Transfer> transfers,
            bool again, std::vector<PhaseSpan>* spans, LayerOutcome& outcome);
  std::vector<double> gradients_home(const StepPlan& plan, const LayerPlacement& homes) const;
  LayerMemory memory(const LayerPlacement& homes) const;

  const SimSetup& setup_;
  Method method_;
  Nodes nodes_;                                     // in two levels
  std::vector<LayerPlacement> homes_;               // by layer
  std::vector<std::unique_ptr<Planner>> planners_;  // whose fastest plan is taken
  std::vector<std::optional<HeldSlots>> slots_;     // by layer
  std::optional<LayerSeconds> seconds_;
  MemoryOptions options_;
  std::optional<BufferBytes> bytes_;
  std::unique_ptr<StepDecider> decider_;
  TrafficCounter counter_;
  ChunkShares shares_;
  ForeignLoads foreign_;
  std::vector<std::int32_t> table_numbers_;
  std::vector<RankMemory> memories_;
  int blocks_ = 1;                // that the step was counted in
  std::vector<int> rest_blocks_;  // and what backward computes again, each time
  LayerTokens part_, rest_;       // of a chunk, and of what is computed again
  StepDecision decision_, rest_decision_;
  Chunks forward_, rest_chunks_;
  std::vector<ChunkWork> work_;
  LayerOutcome outcome_, tried_;
};

}  // namespace evenkeel
