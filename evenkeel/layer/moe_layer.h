// The expert-parallel MoE layer: sends tokens to the ranks that compute their experts, and sends the results
// back. The planner spreads the work, and the weights that the work needs, over the ranks. Forward and
// backward run on the CPU or on GPUs (MoeOptions::device); on both a step runs in the same order
// (layer/internal/step_sequence.h).
//
// Collective   Every rank of the communicator makes the same calls in the same order, with its own tokens
//              (from 0 to max_tokens).
// Exact        Output and gradients are those of a dense evaluation, whatever the plan; no assignment is
//              dropped. The output has the same bits for every plan and rank count if bitwise() holds.
// Memory       On the CPU (for GPUs see layer/cuda/on_gpu.h), rows, results, saved activations, borrowed
//              weights and tables are in the arena; native weights and the caller's tensors are not. A warm
//              layer allocates nothing elsewhere, except in its ExpertFfn: oneDNN makes a small argument map
//              for every product and every packing of borrowed weights. If the arena has a budget, no step
//              exceeds it, whatever the routing: a step is cut into chunks of tokens that run one after the
//              other, and backward recomputes what could not be kept (MemFine, arXiv 2511.21431).
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

// Options that only a layer on the CPU has.
struct CpuOptions {
  // Which part of forward is recomputed in backward, and how steps are cut into chunks. Without a budget
  // `automatic` recomputes nothing.
  MemoryOptions memory = {};
  // The node of each rank, numbered from 0 without gaps, for an exchange in two levels: a row or weight that
  // is needed by several ranks of another node is sent over the link once and passed on inside that node.
  // Empty means one level. The output bits are the same. Not supported with a budget.
  std::vector<int> node_of_rank = {};
  // With `node_of_rank`: each node adds up a token's results, and in backward its gradients, before it sends
  // them. So one row returns over the link for each row that was sent. The last bits then depend on the plan.
  bool sum_in_nodes = false;
  // Computes the experts' products; null selects the library's own products for this CPU.
  std::shared_ptr<const ExpertFfn> experts = nullptr;
  // Called at the end of each forward and backward, on the rank's thread.
  std::function<void(const StepStatistics&)> on_step = {};
  // Called when a step leaves a phase, on the rank's thread.
  std::function<void(const TimedPhase&)> on_phase = {};
};

// A device other than the CPU on which a layer's steps run. layer/cuda/on_gpu.h has one for NVIDIA GPUs.
class LayerDevice {
 public:
  virtual ~LayerDevice() = default;
  // Digest of the device kind and its options, which must be the same on all ranks.
  virtual std::uint64_t digest() const = 0;
  // Collective.
  virtual std::unique_ptr<internal::LayerBackend> make(const internal::LayerParts& layer) const = 0;
};

struct MoeOptions {
  PlannerOptions planner;
  // The most tokens of one rank in a step.
  std::int64_t max_tokens = 4096;
  // If false, nothing is saved for backward and the constructor does less work.
  bool with_backward = true;
  // The most states of this layer alive at one time. Used on a GPU and in an arena with a budget.
  int states_in_flight = 1;
  // Where steps run, with that device's own options: the CPU, or on_gpu() (layer/cuda/on_gpu.h).
  std::variant<CpuOptions, std::shared_ptr<const LayerDevice>> device = CpuOptions();

  // Throw std::bad_variant_access if the layer is not on the CPU.
  CpuOptions& cpu() { return std::get<CpuOptions>(device); }
  const CpuOptions& cpu() const { return std::get<CpuOptions>(device); }
};

// The tensors into which backward writes gradients; they must not overlap its inputs. backward overwrites the
// gradients of hidden [tokens, D] and of the router weights [tokens * k]. It adds to the gradients of the
// native experts, which are in the order of natives(). A redundant expert's gradient is added only on its
// owner; on its other homes the tensors may be null. All other tensors are required.
struct MoeGradients {
  Rows hidden;
  std::span<float> router_weights;
  std::span<const ExpertGradients> experts;
};

// What forward saves for backward. Move-only. Several may be in flight. backward() consumes one; a state may
// also be destroyed without backward. Must be destroyed before its layer, on the layer's thread.
class ForwardState {
 public:
  ForwardState() = default;

  // Whether the state holds a step that backward can still consume.
  explicit operator bool() const { return step_ != nullptr; }
  // The step's plan, and the chunks in which it ran. Throw InvalidArgument if the state holds no step, and
  // Unsupported on a GPU, where plan and chunks stay on the device: use MoeLayer::report() there.
  const StepPlan& plan() const;
  std::span<const Chunk> chunks() const;

 private:
  friend class MoeLayer;

  struct ReturnToLayer {
    internal::LayerBackend* layer;  // valid if the state holds a step
    void operator()(internal::StepState* step) const noexcept;
  };
  explicit ForwardState(internal::LayerBackend& layer);
  const internal::StepState& held() const;

  std::unique_ptr<internal::StepState, ReturnToLayer> step_;
};

class MoeLayer {
 public:
  // Collective: ranks compare version, shape, options and placement. Throws InvalidArgument
  //   - naming a rank, if they differ (a rank still waiting when another throws gets that message as a
  //     CommError);
  //   - for an impossible shape;
  //   - if live states of the arena's other layers hold the memory that this layer needs.
  // Throws BudgetTooSmall if the arena's budget is below what all its layers need for any routing.
  // `comm` and `arena` must outlive the layer.
  MoeLayer(Communicator& comm, Arena& arena, const MoeShape& shape, LayerPlacement placement,
           MoeOptions options = {});
  ~MoeLayer();
  MoeLayer(const MoeLayer&) = delete;
  MoeLayer& operator=(const MoeLayer&) = delete;

  const LayerPlacement& placement() const;
  // The experts native to this rank, ascending.
  std::span<const ExpertId> natives() const;
  // Sets the weights of natives(), in that order. Call it again after each optimizer step. The tensors must
  // stay alive and unchanged until the next call. Throws InvalidArgument if experts or tensors are missing.
  // On a GPU it is collective and waits for the GPU, and the tensors' contents may change between steps.
  void set_weights(std::span<const ExpertWeights> natives);

  // Sets the planner options of later steps, and allocates at once all memory that planning needs. Every rank
  // must set the same options before the same step.
  void set_planner(const PlannerOptions& options);

  // hidden and output: [tokens, D] of the shape's type. Returns what backward needs besides `hidden`, which
  // must stay unchanged until then. On a GPU all tensors, including those in `top_k`, are in GPU memory; the
  // choices in `top_k` must also stay unchanged until backward, and the GPU (not this call) checks the ids.
  // Throws InvalidArgument if more states are alive than options.states_in_flight; this is checked first, and
  // the communicator stays usable. Also throws it for views of another shape, more than max_tokens tokens, or
  // an expert id outside -1..E-1 (naming the token).
  ForwardState forward(ConstRows hidden, const TopK& top_k, Rows output);

  // Consumes a state of this layer. grad_output: [tokens, D].
  // Throws InvalidArgument for a state that holds no step of this layer, for views of another shape, and if a
  // gradient tensor is missing.
  void backward(ForwardState state, ConstRows grad_output, const MoeGradients& gradients);

  // Whether output bits are the same for every plan and rank count, on all ranks; if not, the reason.
  const BitwiseReport& bitwise() const;

  // The least budget of an arena that has only this layer.
  std::int64_t least_budget() const;

  // What was decided about a step. On a GPU, waits for the step. Throws InvalidArgument for a state that
  // holds no step of this layer.
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
