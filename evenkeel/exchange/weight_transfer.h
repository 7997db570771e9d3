// Lends and borrows the weights of experts that a step plan computes away from home, and returns their
// gradients.
//
// Weights    fetch() posts the weights that this rank lends. Then it receives borrowed experts one after the
//            other, gate_up before the rest, in one reused block. The consumer packs each expert and keeps
//            only the packed form. finish() waits until the borrowers have received their weights.
// Nodes      With two levels of nodes, weights that several ranks of another node borrow are sent only to the
//            first of these ranks, which forwards them to the others.
// Gradients  Every rank that computed an expert without owning it sends its f32 gradient to the owner. The
//            owner adds them in the plan's order, with one expert's gradient in memory at a time.
// Memory     Arriving weights and outgoing gradients are in the borrower's arena.
// Errors     BudgetTooSmall if the arena has too little space; CommError if another rank has thrown or does
//            not answer. Plan and placement must belong to one step and be the same on all ranks (unchecked).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "evenkeel/comm/communicator.h"
#include "evenkeel/device/arena.h"
#include "evenkeel/device/cpu/stream.h"
#include "evenkeel/plan/nodes.h"
#include "evenkeel/plan/placement.h"
#include "evenkeel/plan/step_plan.h"

namespace evenkeel {

// One expert's tensors as bytes: gate_up, down and their biases; unused parts are empty.
inline constexpr std::size_t kExpertParts = 4;
using ExpertParts = std::array<std::span<const std::byte>, kExpertParts>;
// One expert's f32 gradients, to add to.
using GradientParts = std::array<std::span<float>, kExpertParts>;

// Elements that a borrowed expert occupies. Each of its parts begins on a cache line.
struct BorrowedElements {
  std::int64_t gate_up = 0;
  std::int64_t rest = 0;
  std::int64_t all() const { return gate_up + rest; }
  std::int64_t larger() const { return std::max(gate_up, rest); }
};
BorrowedElements borrowed_elements(const std::array<std::int64_t, kExpertParts>& elements);

class WeightTransfer {
 public:
  // `comm` must carry only weights, so that they never queue behind tokens. `elements` has each part's size.
  // Collective if nodes have two levels.
  WeightTransfer(Communicator& comm, Arena& arena, const std::array<std::int64_t, kExpertParts>& elements,
                 std::int64_t bytes_per_element, Nodes nodes = {});

  // Allocates everything that plans of this shape need, so that later steps do not allocate.
  void reserve(const StepPlan& any);

  // How many experts this rank borrows under a plan.
  std::int64_t borrows(const StepPlan& plan) const {
    return std::ranges::count(plan.transfers(), comm_.rank(), &Transfer::to);
  }
  // Bytes that a borrowed expert occupies while `take` reads it.
  std::int64_t arrival_bytes() const { return borrowed_.larger() * bytes_per_element_; }
  // Bytes of the gradients that this rank holds for other owners under a plan.
  std::int64_t foreign_gradient_bytes(const StepPlan& plan, const LayerPlacement& placement) const;
  // Whether other ranks hold gradients for this one.
  bool awaits_gradients(const StepPlan& plan, const LayerPlacement& placement) const;

  // Carries out the plan's transfers. Calls take(expert, parts) twice for each borrowed expert, in the plan's
  // order: first with only gate_up, then with the other parts. The parts are valid only during the call.
  // `natives[e]` are the weights of expert e if it is native to this rank.
  template <class Take>
  void fetch(const StepPlan& plan, std::span<const ExpertParts> natives, const Take& take) {
    lend(plan, natives);
    Buffer arrival;
    for (std::size_t i = 0; i < plan.transfers().size(); ++i) {
      const Transfer& transfer = plan.transfers()[i];
      if (transfer.to != comm_.rank()) continue;
      for (const auto& [first, end] : {std::pair{std::size_t{0}, std::size_t{1}}, {1, kExpertParts}}) {
        take(transfer.expert, receive(plan, i, first, end, arrival));
        forwarding_.synchronize();  // before `arrival` is overwritten
      }
    }
  }
  // Waits until the borrowers have received what this rank lent.
  void finish() { sending_.synchronize(); }

  // Allocates zeroed gradients for the experts that this rank computes but does not own.
  void open_gradients(const StepPlan& plan, const LayerPlacement& placement);
  struct ForeignGradient {
    ExpertId expert;
    RankId owner;
    GradientParts parts;
  };
  std::span<const ForeignGradient> foreign_gradients() const { return foreign_gradients_; }
  // Sends these gradients to the owners, and adds the received ones to `owned[e]`. Collective. Releases the
  // memory.
  void return_gradients(std::span<const GradientParts> owned);

 private:
  struct Return {
    ExpertId expert;
    RankId from;
  };

  void lend(const StepPlan& plan, std::span<const ExpertParts> natives);
  ExpertParts receive(const StepPlan& plan, std::size_t index, std::size_t first, std::size_t end,
                      Buffer& arrival);
  void list_gradients(const StepPlan& plan, const LayerPlacement& placement);
  // The block of gradients at `index`.
  std::span<float> gradient_of(std::size_t index) const;
  // Parts [first, end) of an expert within `block`. One expert element spans `unit` elements of `block`.
  template <class Part>
  std::array<Part, kExpertParts> parts_in(Part block, std::int64_t unit, std::size_t first,
                                          std::size_t end) const;

  Communicator& comm_;
  Arena& arena_;
  std::array<std::int64_t, kExpertParts> elements_{};
  BorrowedElements borrowed_;
  std::int64_t bytes_per_element_;
  Nodes nodes_;
  // For forwarding weights. Separate, because forwarded and lent weights are sent in different orders. Null
  // with one level.
  std::unique_ptr<Communicator> forwarding_comm_;
  std::vector<ForeignGradient> foreign_gradients_;
  std::vector<Return> returns_;  // gradients that this rank receives
  std::vector<RankId> senders_;  // by transfer
  std::vector<SendSlice> sends_;
  std::vector<ReceiveSlice> receives_;
  Buffer gradients_;
  // Separate streams, since a lender's sends complete only when the borrowers receive them. Declared last, so
  // that unfinished operations are cancelled before the buffers are destroyed.
  CpuStream receiving_;
  CpuStream forwarding_;
  CpuStream sending_;
};

}  // namespace evenkeel
