// The expert-parallel MoE layer: tokens go to the ranks that compute their experts and back, with the work,
// and the weights it needs, spread as the planner says. Forward and backward.
//
// Collective   Every rank of the communicator makes the same calls in the same order, with its own tokens
//              (any number up to max_tokens, none included).
// Exact        Output and gradients are those of a dense evaluation, whatever the plan; no assignment is
//              dropped. The output's bits are the same for every plan and rank count where bitwise() holds.
// Memory       Rows, results, saved activations, borrowed weights and tables live in the arena; native
//              weights and the caller's tensors do not. A warm layer allocates nothing elsewhere, but for
//              what its ExpertFfn does: oneDNN makes a small argument map for every product.
// Errors       An exception on one rank ends the communicator for all, with its message as the cause.
// Source       LLEP (arXiv 2601.17111), Algorithms 1 and 4.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "evenkeel/balance/planner.h"
#include "evenkeel/base/matrix_view.h"
#include "evenkeel/comm/communicator.h"
#include "evenkeel/compute/expert_ffn.h"
#include "evenkeel/device/arena.h"
#include "evenkeel/device/cpu/stream.h"
#include "evenkeel/exchange/exchange.h"
#include "evenkeel/exchange/weight_transfer.h"
#include "evenkeel/layer/forward_state.h"
#include "evenkeel/layer/step_statistics.h"
#include "evenkeel/plan/placement.h"

namespace evenkeel {

namespace internal {
class NativeExperts;
class PhaseClock;
}  // namespace internal

struct MoeShape {
  int num_experts = 0;
  int top_k = 0;
  ExpertShape expert;
};

struct MoeOptions {
  PlannerOptions planner;
  // The most tokens that a rank brings to a step.
  std::int64_t max_tokens = 4096;
  // Without backward nothing is saved, and less is made at construction.
  bool with_backward = true;
  // The experts' arithmetic; null: the library's own for this CPU.
  std::shared_ptr<const ExpertFfn> experts;
  // Called at the end of each forward and backward, on the rank's thread.
  std::function<void(const StepStatistics&)> on_step;
};

// Where backward puts gradients: hidden [tokens, D] and router weights [tokens * k] are overwritten, those of
// the experts at home here, in the order of natives(), are added to (redundant copies: at the owner only).
struct MoeGradients {
  Rows hidden;
  std::span<float> router_weights;
  std::span<const ExpertGradients> experts;
};

class MoeLayer {
 public:
  // Collective: ranks compare version, shape, options and placement. Throws InvalidArgument, naming a rank,
  // if they differ (a rank that is still waiting when another throws gets its message as a CommError), or for
  // a shape that cannot be. `comm` and `arena` must outlive the layer.
  MoeLayer(Communicator& comm, Arena& arena, const MoeShape& shape, LayerPlacement placement,
           MoeOptions options = {});
  ~MoeLayer();
  MoeLayer(const MoeLayer&) = delete;
  MoeLayer& operator=(const MoeLayer&) = delete;

  const LayerPlacement& placement() const { return placement_; }
  // The experts at home on this rank, ascending.
  std::span<const ExpertId> natives() const { return placement_.natives(comm_.rank()); }
  // Weights of natives(), in that order; to be called again after each optimizer step. The tensors must stay
  // alive and unchanged until the next call.
  void set_weights(std::span<const ExpertWeights> natives);

  // Plans later steps by other options. Collective in effect: every rank must be given the same before the
  // same step.
  void set_planner(const PlannerOptions& options);

  // hidden and output: [tokens, D] of the shape's type. Returns what backward needs.
  // Throws InvalidArgument for views of another shape, more than max_tokens tokens, or an expert id outside
  // -1..E-1, naming the token.
  ForwardState forward(ConstRows hidden, const TopK& top_k, Rows output);

  // Consumes a state of this layer. grad_output: [tokens, D].
  void backward(ForwardState state, ConstRows grad_output, const MoeGradients& gradients);

  // Whether output bits are the same for every plan and rank count, on all ranks, and if not, why.
  const BitwiseReport& bitwise() const { return bitwise_; }

 private:
  BitwiseReport agree(const MoeOptions& options) const;
  void require_input(ConstRows hidden, const TopK& top_k, ConstRows output) const;
  void require_rows(const char* name, ConstRows rows, std::int64_t tokens) const;
  void gather_counts(const TopK& top_k);
  ForwardState begin(const TopK& top_k);
  void save_for_backward(ForwardState::Body& step, const TopK& top_k);
  void run_experts(ForwardState::Body& step, const Buffer& results);
  void run_experts_backward(ForwardState::Body& step, const Exchange::GradientRows& incoming,
                            const Exchange::ComputedGradients& computed, const MoeGradients& gradients);
  void collect_native_groups(const Dispatched& dispatched, Pass pass);
  void collect_foreign_groups(const Dispatched& dispatched);
  void attach_gradients(const MoeGradients& gradients);
  void finish_step();
  template <class Body>
  auto abort_on_error(const Body& body);

  Communicator& comm_;
  Arena& arena_;
  MoeShape shape_;
  LayerPlacement placement_;
  std::int64_t max_tokens_;
  bool with_backward_;
  std::function<void(const StepStatistics&)> on_step_;
  std::shared_ptr<const ExpertFfn> ffn_;
  std::unique_ptr<Planner> planner_;
  BitwiseReport bitwise_;
  std::unique_ptr<Communicator> weights_comm_;
  std::unique_ptr<internal::NativeExperts> natives_;
  std::unique_ptr<internal::PhaseClock> clock_;
  Counts counts_;
  ForwardState::Pool pool_;
  std::vector<ExpertGroup> groups_;
  std::vector<ExpertId> group_experts_;  // of groups_
  std::vector<GradientParts> owned_gradients_;
  CpuStream stream_;
  Exchange exchange_;
  WeightTransfer transfer_;
};

}  // namespace evenkeel
