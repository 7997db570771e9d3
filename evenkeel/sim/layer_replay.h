// Simulates the steps of one layer. Planners, slots and the decisions of step/ are the code that real steps
// use. Bytes moved and held are counted, and seconds are predicted.
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

// The layer and the machine it runs on. Without a layer, only loads and transfers can be computed. Without
// the rates of links or products, everything except seconds can be computed.
struct SimLayer {
  LayerSizes sizes;
  ChunkShape chunk;
};
struct SimSetup {
  Topology topology;  // topology of one group
  std::optional<SimLayer> layer = {};
  std::optional<Machine> machine = {};
  bool backward = false;
  std::optional<std::int64_t> budget = {};  // bytes of a rank's arena
  std::int64_t most_tokens = 1;             // most tokens of a rank in a step
  PlannerOptions planner = {};              // options for planners; the method sets the kind of planner
  MemoryOptions memory = {};                // memory.cost is set to `machine`, if known
};

struct LayerOutcome {
  StepReason reason = StepReason::as_planned;
  StepPlan plan;
  std::vector<Chunk> chunks;
  std::vector<Transfer> sent;   // transfers of borrowed weights in one pass
  std::int64_t recomputed = 0;  // assignments that backward recomputes
  // Set if the layer is known.
  std::int64_t rows = 0;           // sent to other ranks in forward
  std::vector<Peaks> peaks;        // one for each rank
  std::vector<double> pair_bytes;  // [P, P]
  LayerSeconds::Moved moved;
  // Set if the machine is known.
  double seconds = 0;
  PhaseSeconds parts{};
  // Set if spans were requested.
  std::vector<PhaseSpan> spans;
  StepBytes fullest;  // bytes of the fullest rank
};

class LayerReplay {
 public:
  // Replays a method in layers with the given homes, one LayerPlacement per layer. `setup` must outlive this
  // object. Throws InvalidArgument for a method that this set-up does not support.
  LayerReplay(const SimSetup& setup, const Method& method, std::vector<LayerPlacement> homes);
  LayerReplay(const LayerReplay&) = delete;  // not copied, because the decider refers to members
  LayerReplay& operator=(const LayerReplay&) = delete;

  // Changes the homes and empties all slots.
  void place(std::vector<LayerPlacement> homes);
  const LayerPlacement& homes(int layer) const { return homes_[static_cast<std::size_t>(layer)]; }
  // Simulates one layer of the next step. The result is valid until the next call.
  const LayerOutcome& run(int layer, const LayerTokens& tokens, bool with_spans = false);

 private:
  // The chunks of a pass, each with its plan and traffic.
  struct Chunks {
    std::vector<StepPlan> plans;
    std::vector<Traffic> traffic;
    std::vector<RankLoads> loads;
  };
  void take_whole(bool moves, StepDecision& decision) const;
  void decide(Planner& planner, const LayerPlacement& homes, const LayerTokens& tokens,
              StepDecision& decision);
  void decide_recompute(const LayerPlacement& homes, const LayerTokens& tokens, const StepDecision& forward);
  BlockTable block_table(const LayerPlacement& homes, const LayerTokens& tokens);
  void count_chunks(const LayerPlacement& homes, const LayerTokens& tokens, const StepDecision& decision,
                    std::int64_t units, Chunks& chunks);
  void carry_out(const LayerPlacement& homes, const LayerTokens& tokens, const StepDecision& decision,
                 std::span<const Transfer> transfers, LayerOutcome& outcome, bool with_spans);
  void time(const LayerPlacement& homes, const StepDecision& decision, std::span<const Transfer> transfers,
            bool recomputes, std::vector<PhaseSpan>* spans, LayerOutcome& outcome);
  std::vector<double> gradients_home(const StepPlan& plan, const LayerPlacement& homes) const;
  LayerMemory memory(const LayerPlacement& homes) const;

  const SimSetup& setup_;
  Method method_;
  Nodes nodes_;                                     // set for two-levels
  std::vector<LayerPlacement> homes_;               // by layer
  std::vector<std::unique_ptr<Planner>> planners_;  // every plan is tried, and the fastest is used
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
  int blocks_ = 1;  // number of blocks in which the step was counted
  // for each decision on what backward recomputes, its number of blocks
  std::vector<int> recompute_blocks_;
  LayerTokens part_, recompute_tokens_;  // tokens of one chunk, and of the recomputed part
  StepDecision decision_, recompute_decision_;
  Chunks forward_, recompute_chunks_;
  std::vector<ChunkWork> work_;
  LayerOutcome outcome_, tried_;
};

}  // namespace evenkeel
