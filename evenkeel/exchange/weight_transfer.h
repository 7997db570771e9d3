// Weights for the experts that a step plan has computed away from home, and the way back for their gradients.
//
// Weights    fetch() posts what this rank lends and takes what it borrows one expert after the other, gate_up
//            before the rest, through one block of memory: whoever computes packs them anyway, and keeps only
//            that. finish() waits for those that borrow from this rank.
// Nodes      With nodes in two levels, weights that several ranks of another node borrow from one rank go
//            to the first of them alone, which passes them on as it takes them.
// Gradients  Every rank other than an expert's owner that computed some of it sends its f32 gradient to the
//            owner, who adds the parts in the plan's order, one expert's in memory at a time.
// Memory     Weights that arrive and gradients that are to leave are in the borrower's arena.
// Errors     BudgetTooSmall where it has no space for them; CommError where another rank has thrown or does
//            not answer. Plan and placement must be of one step, the same on all ranks: not checked.
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
// As above, for f32 gradients to add to.
using GradientParts = std::array<std::span<float>, kExpertParts>;

// Elements that an expert takes where it is borrowed: its parts, each beginning on a cache line.
struct BorrowedElements {
  std::int64_t gate_up = 0;
  std::int64_t rest = 0;
  std::int64_t all() const { return gate_up + rest; }
  std::int64_t larger() const { return std::max(gate_up, rest); }
};
BorrowedElements borrowed_elements(const std::array<std::int64_t, kExpertParts>& elements);

class WeightTransfer {
 public:
  // `comm` is for weights alone, so that they never queue behind tokens. `elements` is the size of each part.
  // Collective with nodes in two levels.
  WeightTransfer(Communicator& comm, Arena& arena, const std::array<std::int64_t, kExpertParts>& elements,
                 std::int64_t bytes_per_element, Nodes nodes = {});

  // Takes all memory that plans of this one's shape want, so that none allocates.
  void reserve(const StepPlan& any);

  // How many experts this rank borrows under a plan.
  std::int64_t borrows(const StepPlan& plan) const {
    return std::ranges::count(plan.transfers(), comm_.rank(), &Transfer::to);
  }
  // Bytes that a borrowed expert takes while it is shown to `take`.
  std::int64_t landing_bytes() const { return borrowed_.larger() * bytes_per_element_; }
  // The gradients that this rank holds for other ranks under a plan.
  std::int64_t away_bytes(const StepPlan& plan, const LayerPlacement& placement) const;
  // Whether other ranks hold gradients for this one.
  bool awaits_gradients(const StepPlan& plan, const LayerPlacement& placement) const;

  // Carries out the plan's transfers: take(expert, parts) twice for each borrowed expert, in the plan's
  // order, first with gate_up alone and then with the other parts, which are gone when it returns.
  // `natives[e]` are the weights of expert e where it is at home here.
  template <class Take>
  void fetch(const StepPlan& plan, std::span<const ExpertParts> natives, const Take& take) {
    lend(plan, natives);
    Buffer landing;
    for (std::size_t i = 0; i < plan.transfers().size(); ++i) {
      const Transfer& transfer = plan.transfers()[i];
      if (transfer.to != comm_.rank()) continue;
      for (const auto& [first, end] : {std::pair{std::size_t{0}, std::size_t{1}}, {1, kExpertParts}}) {
        take(transfer.expert, land(plan, i, first, end, landing));
        passing_on_.synchronize();  // before another expert lands there
      }
    }
  }
  // Waits until what was lent has been read.
  void finish() { sending_.synchronize(); }

  // Zeros for the gradients that this rank will send away: of experts that it computes and does not own.
  void open_gradients(const StepPlan& plan, const LayerPlacement& placement);
  struct Away {
    ExpertId expert;
    RankId owner;
    GradientParts parts;
  };
  std::span<const Away> away() const { return away_; }
  // Sends them to their owners, and adds what comes to `owned[e]`. Collective; gives the memory back.
  void return_gradients(std::span<const GradientParts> owned);

 private:
  struct Return {
    ExpertId expert;
    RankId from;
  };

  void lend(const StepPlan& plan, std::span<const ExpertParts> natives);
  ExpertParts land(const StepPlan& plan, std::size_t index, std::size_t first, std::size_t end,
                   Buffer& landing);
  void list_gradients(const StepPlan& plan, const LayerPlacement& placement);
  // One expert's block of the gradients held.
  std::span<float> gradient_of(std::size_t away) const;
  // Parts [first, end) of an expert, in a block of them; `unit` is what one element takes of the span.
  template <class Part>
  std::array<Part, kExpertParts> parts_in(Part block, std::int64_t unit, std::size_t first,
                                          std::size_t end) const;

  Communicator& comm_;
  Arena& arena_;
  std::array<std::int64_t, kExpertParts> elements_{};
  BorrowedElements borrowed_;
  std::int64_t bytes_per_element_;
  Nodes nodes_;
  // For what is passed on, whose order is another than that of what is lent; null in one level.
  std::unique_ptr<Communicator> passing_comm_;
  std::vector<Away> away_;
  std::vector<Return> returns_;  // gradients that come to this rank
  std::vector<RankId> senders_;  // by transfer
  std::vector<SendSlice> sends_;
  std::vector<ReceiveSlice> receives_;
  Buffer gradients_;
  // Apart, since a lender's sends are complete only when borrowers have got to them. Last, so that what is
  // unfinished is withdrawn before the buffers go.
  CpuStream receiving_;
  CpuStream passing_on_;
  CpuStream sending_;
};

}  // namespace evenkeel
