// The bytes that a rank holds while it carries out a chunk, as a decision asks for them. Two models answer:
// buffers added up to the byte (buffer_bytes.h), and phases whose sizes were measured (phase_bytes.h).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "evenkeel/budget/chunk_bytes.h"
#include "evenkeel/plan/placement.h"
#include "evenkeel/plan/step_plan.h"

namespace evenkeel {

// Experts that a rank holds of other ranks, and lends to them, under a plan, whatever the chunks.
struct ForeignLoad {
  std::int64_t weights = 0;    // experts whose weights it borrows
  std::int64_t gradients = 0;  // experts whose gradients it sends to their owners
  std::int64_t lent = 0;       // experts that it owns, once for each other rank that computes gradients of it
};

// Foreign loads of all ranks under a plan.
class ForeignLoads {
 public:
  explicit ForeignLoads(int num_ranks) : loads_(static_cast<std::size_t>(num_ranks)) {}

  // Reads a plan. O(P + transfers), and where experts have several homes O(homes).
  void read(const StepPlan& plan, const LayerPlacement& placement);
  // Plain EP moves nothing, each expert having one home.
  void clear() {
    loads_.assign(loads_.size(), {});
    transfers_ = 0;
  }

  // The most experts' weights that a rank borrows.
  std::int64_t transfers() const { return transfers_; }
  std::span<const ForeignLoad> loads() const { return loads_; }  // by rank

 private:
  std::vector<ForeignLoad> loads_;
  std::int64_t transfers_ = 0;
};

// A pass through a chunk: forward with nothing or all of it kept for backward; backward of a kept chunk, or
// of one that is computed again.
enum class ChunkUse { forward, forward_kept, backward_kept, recompute };

class ByteModel {
 public:
  virtual ~ByteModel() = default;

  // The most bytes at one time, with what the rank holds of other ranks' experts.
  virtual std::int64_t bytes(ChunkUse use, const ChunkLoad& load, const ForeignLoad& foreign) const = 0;
  // The part of these bytes that does not depend on the chunk.
  virtual std::int64_t foreign(ChunkUse use, const ForeignLoad& foreign) const = 0;
  // The most bytes between chunks, while weights arrive or gradients come home.
  virtual std::int64_t travelling(ChunkUse use, const ForeignLoad& foreign) const = 0;
  // A kept chunk leaves so many bytes until backward.
  virtual std::int64_t held(const ChunkLoad& load) const = 0;

  // Products may have more than their least workspace in a step that has so many bytes to spare; the same on
  // all ranks.
  virtual void give_workspace(std::int64_t /*spare_bytes*/) {}
  virtual Workspaces workspaces() const { return {}; }
};

// Each rank may hold so many bytes in one use of a chunk.
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
