// The expert-parallel MoE layer: tokens go to the ranks that compute their experts and back, with the work,
// and the weights it needs, spread as the planner says. Forward and backward.
//
// Collective   Every rank of the communicator makes the same calls in the same order, with its own tokens
//              (any number up to max_tokens, none included).
// Exact        Output and gradients are those of a dense evaluation, whatever the plan; no assignment is
//              dropped. The output's bits are the same for every plan and rank count where bitwise() holds.
// Memory       Rows, results, saved activations, borrowed weights and tables live in the arena; native
//              weights and the caller's tensors do not. A warm layer allocates nothing elsewhere, but for
//              what its ExpertFfn does: oneDNN makes a small argument map for every product and every packing
//              of borrowed weights. Where the arena has a budget, no step exceeds it, whatever the routing: a
//              step is cut into chunks of tokens, one dispatched, computed and combined after the other, and
//              what cannot be kept for backward is computed again there (MemFine, arXiv 2511.21431).
// Errors       An exception on one rank ends the communicator for all, with its message as the cause.
// Source       LLEP (arXiv 2601.17111), Algorithms 1 and 4.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "evenkeel/balance/planner.h"
#include "evenkeel/base/matrix_view.h"
#include "evenkeel/comm/communicator.h"
#include "evenkeel/compute/expert_ffn.h"
#include "evenkeel/device/arena.h"
#include "evenkeel/device/cpu/stream.h"
#include "evenkeel/exchange/exchange.h"
#include "evenkeel/exchange/overlapped_exchange.h"
#include "evenkeel/exchange/result_rows.h"
#include "evenkeel/exchange/weight_transfer.h"
#include "evenkeel/layer/forward_state.h"
#include "evenkeel/layer/step_statistics.h"
#include "evenkeel/memory/least_budget.h"
#include "evenkeel/plan/placement.h"

namespace evenkeel {

namespace internal {
class BorrowedExperts;
class ExpertGroups;
class NativeExperts;
class PhaseClock;
class StepSchedule;
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
  // In an arena with a budget: how many states of this layer are alive at one time, at most.
  int states_in_flight = 1;
  // What backward computes again. `automatic` is none of it without a budget.
  MemoryOptions memory;
  // The experts' arithmetic; null: the library's own for this CPU.
  std::shared_ptr<const ExpertFfn> experts;
  // Called at the end of each forward and backward, on the rank's thread.
  std::function<void(const StepStatistics&)> on_step;
  // Called when a step enters a phase, on the rank's thread.
  std::function<void(const StepMoment&)> on_phase = {};
};

// Where backward puts gradients, apart from what it reads: hidden [tokens, D] and router weights [tokens * k]
// are overwritten, those of the experts at home here, in the order of natives(), are added to (redundant
// copies: at the owner only).
struct MoeGradients {
  Rows hidden;
  std::span<float> router_weights;
  std::span<const ExpertGradients> experts;
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

  const LayerPlacement& placement() const { return placement_; }
  // The experts at home on this rank, ascending.
  std::span<const ExpertId> natives() const { return placement_.natives(comm_.rank()); }
  // Weights of natives(), in that order; to be called again after each optimizer step. The tensors must stay
  // alive and unchanged until the next call.
  void set_weights(std::span<const ExpertWeights> natives);

  // Plans later steps by other options; takes all memory that planning needs at once. Collective in effect:
  // every rank must be given the same before the same step.
  void set_planner(const PlannerOptions& options);

  // hidden and output: [tokens, D] of the shape's type. Returns what backward needs besides `hidden`, which
  // must stay as it is until then.
  // Throws InvalidArgument for views of another shape, more than max_tokens tokens, or an expert id outside
  // -1..E-1, naming the token.
  ForwardState forward(ConstRows hidden, const TopK& top_k, Rows output);

  // Consumes a state of this layer. grad_output: [tokens, D].
  void backward(ForwardState state, ConstRows grad_output, const MoeGradients& gradients);

  // Whether output bits are the same for every plan and rank count, on all ranks, and if not, why.
  const BitwiseReport& bitwise() const { return bitwise_; }

  // The least budget of an arena that has this layer alone.
  std::int64_t least_budget() const;

 private:
  BitwiseReport agree(const MoeOptions& options) const;
  BudgetShape budget_shape(const MoeOptions& options);
  void set_room_aside(int states);
  void require_input(ConstRows hidden, const TopK& top_k, ConstRows output) const;
  void require_rows(const char* name, ConstRows rows, std::int64_t tokens) const;
  ForwardState begin(ConstRows hidden, const TopK& top_k);
  void borrow_for_forward(const StepPlan& plan);
  void save_choices(ForwardState::Body& step, const TopK& top_k);
  bool overlaps(bool kept) const { return chunks_in_flight_ > 1 && !(kept && arena_.is_bounded()); }
  void forward_chunk(ForwardState::Body& step, const Chunk& chunk, const TopK& top_k, Rows output);
  void forward_overlapped(ForwardState::Body& step, std::span<const Chunk> chunks, const TopK& top_k,
                          Rows output);
  void open_results(const Dispatched& dispatched, const StepPlan& plan);
  SavedPositions positions_to_save(const Dispatched& dispatched, const Chunk& chunk,
                                   const StepPlan& plan) const;
  // Where a chunk's sums of results go.
  struct Sums {
    std::span<const float> weights;
    void* output;
  };
  void run_experts(const Dispatched& dispatched, const void* hidden, const SavedActivations& saved,
                   const std::optional<Sums>& sums);
  void require_backward(const ForwardState& state, ConstRows grad_output,
                        const MoeGradients& gradients) const;
  void drop_what_has_no_room(ForwardState::Body& step);
  bool kept_fits(const ForwardState::Body& step) const;
  bool parts_fit(const ForwardState::Kept& kept, const StepPlan& plan) const;
  ForeignLoad foreign_load(const Dispatched& dispatched, const StepPlan& plan) const;
  std::int64_t borrowing_bytes(const StepPlan& plan, std::span<const Pass> passes) const;
  std::span<const Pass> again_passes() const;
  void borrow_for_backward(const StepPlan& plan, std::span<const Pass> passes);
  void return_what_was_borrowed();
  void backward_kept(ForwardState::Body& step, ConstRows grad_output, const MoeGradients& gradients);
  void backward_rest(ForwardState::Body& step, ConstRows grad_output, const MoeGradients& gradients);
  SavedActivations save_again(const Dispatched& dispatched, const void* hidden, const StepPlan& plan);
  void backward_kept_overlapped(ForwardState::Body& step, ConstRows grad_output,
                                const MoeGradients& gradients);
  void backward_rest_overlapped(ForwardState::Body& step, std::int64_t before, ConstRows grad_output,
                                const MoeGradients& gradients);
  // A chunk's tokens in the caller's tensors.
  struct TokenRows {
    TopK top_k;
    const void* hidden = nullptr;
    const void* grad_output = nullptr;
    void* grad_hidden = nullptr;
    std::span<float> grad_router_weights;
  };
  // Passes with two chunks in flight.
  class Overlapped;
  class OverlappedForward;
  class OverlappedBackward;
  class OverlappedKept;
  class OverlappedRest;
  TokenRows token_rows(const ForwardState::Body& step, std::int64_t first, std::int64_t tokens,
                       ConstRows grad_output, const MoeGradients& gradients) const;
  void backward_chunk(Dispatched& dispatched, SavedActivations saved, const TokenRows& tokens,
                      const MoeGradients& gradients);
  void send_gradients_home(Dispatched& dispatched, Exchange::GradientRows incoming,
                           Exchange::ComputedGradients computed, const TokenRows& tokens);
  void backward_in_parts(ForwardState::Kept& kept, const StepPlan& plan, const TokenRows& tokens,
                         const MoeGradients& gradients);
  // What a chunk's products read and write in backward, besides its groups.
  struct GradientFlow {
    const Dispatched& dispatched;
    const TokenRows& tokens;
    const Exchange::GradientRows& incoming;
    const Exchange::ComputedGradients& computed;
    const MoeGradients& gradients;
  };
  void backward_own_part(SavedActivations& saved, const GradientFlow& flow);
  void backward_foreign_part(SavedActivations& saved, const StepPlan& plan, const GradientFlow& flow);
  void run_experts_backward(Pass pass, const GradientFlow& flow);
  void add_gate_up_gradients(const GradientFlow& flow);
  ExpertBatch batch_of(const Dispatched& dispatched) const;
  ChunkLoad load_of(const Dispatched& dispatched) const;
  const void* row(ConstRows rows, std::int64_t first) const;
  void* row(Rows rows, std::int64_t first) const;
  void attach_gradients(const MoeGradients& gradients);
  void finish_step();
  // What fails here, fails on all ranks.
  template <class Body>
  auto abort_on_error(const Body& body) {
    try {
      return body();
    } catch (const std::exception& error) {
      comm_.abort(error.what());
      throw;
    }
  }

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
  std::unique_ptr<internal::BorrowedExperts> borrowed_;
  std::unique_ptr<internal::ExpertGroups> groups_;
  std::unique_ptr<internal::PhaseClock> clock_;
  Buffer choices_;  // of states in flight, where the arena has a budget
  ForwardState::Pool pool_;
  std::vector<GradientParts> owned_gradients_;
  std::vector<std::uint8_t> split_experts_;  // by expert, of the present step's plan
  ResultRows result_rows_;
  CpuStream stream_;
  Exchange exchange_;
  OverlappedExchange overlapped_;
  WeightTransfer transfer_;
  BudgetShape budget_;
  Recompute recompute_;
  int chunks_in_flight_;
  std::int64_t positions_a_group_;  // that take as long as reading an expert's weights
  std::unique_ptr<internal::StepSchedule> schedule_;
  bool borrowing_ = false;  // for the present pass
};

}  // namespace evenkeel
