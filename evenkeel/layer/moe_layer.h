// The expert-parallel MoE layer: tokens go to the ranks that compute their experts and back, with the work,
// and the weights it needs, spread as the planner says. Forward and backward, on the CPU or on GPUs
// (MoeOptions::device): the order of a step is the same (layer/internal/step_story.h).
//
// Collective   Every rank of the communicator makes the same calls in the same order, with its own tokens
//              (any number up to max_tokens, none included).
// Exact        Output and gradients are those of a dense evaluation, whatever the plan; no assignment is
//              dropped. The output's bits are the same for every plan and rank count where bitwise() holds.
// Memory       On the CPU (a GPU's is in layer/cuda/on_gpu.h): rows, results, saved activations, borrowed
//              weights and tables live in the arena; native weights and the caller's tensors do not. A warm
//              layer allocates nothing elsewhere, but for what its ExpertFfn does: oneDNN makes a small
//              argument map for every product and every packing of borrowed weights. Where the arena has a
//              budget, no step exceeds it, whatever the routing: a step is cut into chunks of tokens, one
//              dispatched, computed and combined after the other, and what cannot be kept for backward is
//              computed again there (MemFine, arXiv 2511.21431).
// Errors       An exception on one rank ends the communicator for all, with its message as the cause.
// Source       LLEP (arXiv 2601.17111), Algorithms 1 and 4.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <variant>
#include <vector>

#include "evenkeel/balance/planner.h"
#include "evenkeel/base/matrix_view.h"
#include "evenkeel/budget/chunk_planner.h"
#include "evenkeel/budget/memory_options.h"
#include "evenkeel/comm/communicator.h"
#include "evenkeel/compute/expert_ffn.h"
#include "evenkeel/device/arena.h"
#include "evenkeel/layer/step_statistics.h"
#include "evenkeel/plan/placement.h"
#include "evenkeel/plan/step_plan.h"
#include "evenkeel/plan/top_k.h"

namespace evenkeel {

namespace internal {
class LayerBackend;
struct LayerParts;
class StepState;
}  // namespace internal

struct MoeShape {
  int num_experts = 0;
  int top_k = 0;
  ExpertShape expert;
};

// What may be said of a layer on the CPU alone.
struct CpuOptions {
  // The part of forward that backward computes again, and in which chunks. `automatic` is none without a
  // budget.
  MemoryOptions memory = {};
  // The node of each rank, from 0 without gaps, for steps in two levels: a token's row that several ranks of
  // another node compute, and weights that several borrow, cross the link to it once and are passed on there.
  // Empty: one level. The bits are the same. Not in an arena with a budget.
  std::vector<int> node_of_rank = {};
  // With `node_of_rank`: each node adds a token's results, and in backward its gradients, before they leave
  // it, so that one row returns over the link for each that went out. The plan then decides the last bits.
  bool sum_in_nodes = false;
  // The experts' arithmetic; null: the library's own for this CPU.
  std::shared_ptr<const ExpertFfn> experts = nullptr;
  // Called at the end of each forward and backward, on the rank's thread.
  std::function<void(const StepStatistics&)> on_step = {};
  // Called when a step leaves a phase, on the rank's thread.
  std::function<void(const TimedPhase&)> on_phase = {};
};

// Where a layer's steps run, if not on the CPU: layer/cuda/on_gpu.h has one for NVIDIA GPUs.
class LayerDevice {
 public:
  virtual ~LayerDevice() = default;
  // Of the kind of device and its options, which must be the same on all ranks.
  virtual std::uint64_t digest() const = 0;
  // Collective.
  virtual std::unique_ptr<internal::LayerBackend> make(const internal::LayerParts& layer) const = 0;
};

struct MoeOptions {
  PlannerOptions planner;
  // The most tokens that a rank brings to a step.
  std::int64_t max_tokens = 4096;
  // Without backward nothing is saved, and less is made at construction.
  bool with_backward = true;
  // In an arena with a budget, and on a GPU: how many states of this layer are alive at one time, at most.
  int states_in_flight = 1;
  // Where steps run, with what that device alone has options for: here, or on_gpu() (layer/cuda/on_gpu.h).
  std::variant<CpuOptions, std::shared_ptr<const LayerDevice>> device = CpuOptions();

  // Throw std::bad_variant_access for a layer that is not on the CPU.
  CpuOptions& cpu() { return std::get<CpuOptions>(device); }
  const CpuOptions& cpu() const { return std::get<CpuOptions>(device); }
};

// Where backward puts gradients, apart from what it reads: hidden [tokens, D] and router weights [tokens * k]
// are overwritten, those of the experts at home here, in the order of natives(), are added to. Of a redundant
// expert that is the owner's gradient alone, and the tensors of its other homes may be null; all others must
// be there.
struct MoeGradients {
  Rows hidden;
  std::span<float> router_weights;
  std::span<const ExpertGradients> experts;
};

// What forward leaves for backward. Move-only. Several may be in flight; backward consumes one, and dropping
// one without backward is legal. Must go before the layer that made it, on the layer's thread.
class ForwardState {
 public:
  ForwardState() = default;

  // Holds a step that backward can still consume.
  explicit operator bool() const { return step_ != nullptr; }
  // The step's plan, and the chunks in which it was carried out. Throw InvalidArgument where there is no
  // step; Unsupported on a GPU, where they stay: MoeLayer::report() says what is asked of them mostly.
  const StepPlan& plan() const;
  std::span<const Chunk> chunks() const;

 private:
  friend class MoeLayer;

  struct GiveBack {
    internal::LayerBackend* layer;  // of a state that holds a step
    void operator()(internal::StepState* step) const noexcept;
  };
  explicit ForwardState(internal::LayerBackend& layer);
  const internal::StepState& held() const;

  std::unique_ptr<internal::StepState, GiveBack> step_;
};

class MoeLayer {
 public:
  // Collective: ranks compare version, shape, options and placement. Throws InvalidArgument, naming a rank,
  // if they differ (a rank that is still waiting when another throws gets its message as a CommError), or for
  // a shape that cannot be; BudgetTooSmall where the arena's budget is below what its layers need whatever
  // the routing; InvalidArgument where states of its other layers, alive already, keep what this one needs.
  // `comm` and `arena` must outlive the layer.
  MoeLayer(Communicator& comm, Arena& arena, const MoeShape& shape, LayerPlacement placement,
           MoeOptions options = {});
  ~MoeLayer();
  MoeLayer(const MoeLayer&) = delete;
  MoeLayer& operator=(const MoeLayer&) = delete;

  const LayerPlacement& placement() const;
  // The experts at home on this rank, ascending.
  std::span<const ExpertId> natives() const;
  // Weights of natives(), in that order; to be called again after each optimizer step. The tensors must stay
  // alive and unchanged until the next call. Throws InvalidArgument where experts or tensors are missing. On
  // a GPU, collective: waits for it, and what tensors hold may change between steps.
  void set_weights(std::span<const ExpertWeights> natives);

  // Plans later steps by other options; takes all memory that planning needs at once. Collective in effect:
  // every rank must be given the same before the same step.
  void set_planner(const PlannerOptions& options);

  // hidden and output: [tokens, D] of the shape's type. Returns what backward needs besides `hidden`, which
  // must stay as it is until then. On a GPU all tensors, the choices in `top_k` too, are in its memory; the
  // choices must stay until backward as well, and ids outside -1..E-1 are found there, not here.
  // Throws InvalidArgument where more states are alive than the layer was made for, before anything else, and
  // the communicator stays as it is; for views of another shape, more than max_tokens tokens, or an expert id
  // outside -1..E-1, naming the token.
  ForwardState forward(ConstRows hidden, const TopK& top_k, Rows output);

  // Consumes a state of this layer. grad_output: [tokens, D].
  // Throws InvalidArgument for a state that holds no step of this layer, for views of another shape, and
  // where a tensor that is added to is missing.
  void backward(ForwardState state, ConstRows grad_output, const MoeGradients& gradients);

  // Whether output bits are the same for every plan and rank count, on all ranks, and if not, why.
  const BitwiseReport& bitwise() const;

  // The least budget of an arena that has this layer alone.
  std::int64_t least_budget() const;

  // The decisions about a step; on a GPU, waits for it. Throws InvalidArgument for a state that holds no
  // step of this layer.
  StepReport report(const ForwardState& state) const;

 private:
  void require_weights(std::span<const ExpertWeights> weights) const;
  void require_rows(const char* name, ConstRows rows, std::int64_t tokens) const;
  void require_input(ConstRows hidden, const TopK& top_k, ConstRows output) const;
  void require_state(const ForwardState& state) const;
  void require_backward(const ForwardState& state, ConstRows grad_output,
                        const MoeGradients& gradients) const;
  template <class Step>
  void run_or_end_all(const Step& step) const;

  std::unique_ptr<internal::LayerParts> parts_;
  std::unique_ptr<internal::LayerBackend> backend_;
  bool weights_set_ = false;
};

}  // namespace evenkeel
