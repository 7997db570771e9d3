// How many bytes a rank holds while it runs a chunk, for the decisions about a step. There are two models:
// one adds up known buffers (buffer_bytes.h), the other has phases of measured size (phase_bytes.h).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "evenkeel/budget/chunk_bytes.h"
#include "evenkeel/plan/placement.h"
#include "evenkeel/plan/step_plan.h"

namespace evenkeel {

// How many experts a rank borrows from other ranks and lends to them under a plan. Chunks do not change this.
struct ForeignLoad {
  std::int64_t weights = 0;    // experts whose weights it borrows
  std::int64_t gradients = 0;  // experts whose gradients it sends to their owners
  std::int64_t lent = 0;       // its own experts, once for each other rank that computes their gradients
};

// Foreign loads of all ranks under a plan.
class ForeignLoads {
 public:
  explicit ForeignLoads(int num_ranks) : loads_(static_cast<std::size_t>(num_ranks)) {}

  // Reads a plan. O(P + transfers), and where experts have several homes O(homes).
  void read(const StepPlan& plan, const LayerPlacement& placement);
  // For plain EP, which moves nothing if each expert has one home.
  void clear() {
    loads_.assign(loads_.size(), {});
    transfers_ = 0;
  }

  // The most experts that any rank borrows.
  std::int64_t transfers() const { return transfers_; }
  std::span<const ForeignLoad> loads() const { return loads_; }  // by rank

 private:
  std::vector<ForeignLoad> loads_;
  std::int64_t transfers_ = 0;
};

// A pass through a chunk: forward that keeps nothing or everything for backward; backward of a kept chunk, or
// of a chunk that is recomputed.
enum class ChunkUse { forward, forward_kept, backward_kept, recompute };

class ByteModel {
 public:
  virtual ~ByteModel() = default;

  // Peak bytes, including other ranks' experts that the rank holds.
  virtual std::int64_t bytes(ChunkUse use, const ChunkLoad& load, const ForeignLoad& foreign) const = 0;
  // The part of these bytes that does not depend on the chunk.
  virtual std::int64_t foreign(ChunkUse use, const ForeignLoad& foreign) const = 0;
  // Peak bytes between chunks, while weights arrive or gradients come home.
  virtual std::int64_t in_transit_bytes(ChunkUse use, const ForeignLoad& foreign) const = 0;
  // Bytes that a kept chunk holds until backward.
  virtual std::int64_t held(const ChunkLoad& load) const = 0;

  // Lets products use more than their least workspace in a step that has `spare_bytes` to spare. The number
  // must be the same on all ranks.
  virtual void give_workspace(std::int64_t /*spare_bytes*/) {}
  virtual Workspaces workspaces() const { return {}; }
};

// How many bytes each rank may hold in one use of a chunk.
struct ChunkLimits {
  const ByteModel& model;
  ChunkUse use;
  std::span<const ForeignLoad> foreign;
  std::span<const std::int64_t> bytes;

  std::int64_t of(RankId rank, const ChunkLoad& load) const {
    return model.bytes(use, load, foreign[rank.offset()]);
  }
  std::int64_t limit(RankId rank) const { return bytes[rank.offset()]; }
};

}  // namespace evenkeel
