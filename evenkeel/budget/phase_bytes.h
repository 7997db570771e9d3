// The byte model of a layer whose bytes were measured. A chunk passes through phases. The bytes of a phase
// are linear in what a rank sends, receives, computes, borrows and lends. The largest phase counts.
//
// Source     Fine-grained chunk distribution: MemFine (arXiv 2511.21431), Eq. 6 and 7.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "evenkeel/budget/byte_model.h"

namespace evenkeel {

// Bytes that one token, assignment, position or expert takes on its rank in one phase of a chunk.
struct PhaseBytes {
  std::int64_t per_token = 0, per_assignment = 0;  // of this rank's tokens
  std::int64_t per_sent = 0, per_received = 0;     // positions, to and from other ranks
  std::int64_t per_position = 0;                   // computed here
  std::int64_t per_borrowed = 0, per_lent = 0;     // experts; lent once for each borrower
  std::int64_t per_summed = 0;                     // borrowed experts whose gradients are summed over chunks
  std::int64_t fixed = 0;

  std::int64_t of(const ChunkLoad& load, const ForeignLoad& foreign) const {
    return fixed + per_token * load.tokens + per_assignment * load.assignments +
           per_sent * load.positions_elsewhere() +
           per_received * (load.positions_here - load.assignments_kept) + per_position * load.positions_here +
           per_borrowed * foreign.weights + per_lent * foreign.lent + per_summed * foreign.gradients;
  }
  friend bool operator==(const PhaseBytes&, const PhaseBytes&) = default;
};

// Every use of a chunk counts all phases, forward and backward, because one budget covers both. Between
// passes only a single kept chunk is held, and the phases include it.
class MeasuredBytes final : public ByteModel {
 public:
  explicit MeasuredBytes(std::vector<PhaseBytes> phases) : phases_(std::move(phases)) {}

  std::int64_t bytes(ChunkUse, const ChunkLoad& load, const ForeignLoad& foreign) const override {
    std::int64_t most = 0;
    for (const PhaseBytes& phase : phases_) most = std::max(most, phase.of(load, foreign));
    return most;
  }
  std::int64_t foreign(ChunkUse use, const ForeignLoad& foreign) const override {
    return bytes(use, {}, foreign);
  }
  std::int64_t in_transit_bytes(ChunkUse use, const ForeignLoad& foreign) const override {
    return bytes(use, {}, foreign);
  }
  std::int64_t held(const ChunkLoad&) const override { return 0; }

 private:
  std::vector<PhaseBytes> phases_;
};

}  // namespace evenkeel
