// The byte model of a layer whose buffer sizes are known. It adds them up as chunk_bytes.h does, exact to the
// byte where loads are exact.
#pragma once

#include "evenkeel/budget/byte_model.h"
#include "evenkeel/budget/memory_options.h"

namespace evenkeel {

class BufferBytes final : public ByteModel {
 public:
  // Assumes the largest workspaces until give_workspace() is called.
  BufferBytes(const ChunkShape& shape, Recompute recompute);

  std::int64_t bytes(ChunkUse use, const ChunkLoad& load, const ForeignLoad& foreign) const override {
    return of_chunk(use, load) + this->foreign(use, foreign);
  }
  std::int64_t foreign(ChunkUse use, const ForeignLoad& foreign) const override;
  std::int64_t in_transit_bytes(ChunkUse use, const ForeignLoad& foreign) const override;
  std::int64_t held(const ChunkLoad& load) const override {
    return held_bytes(shape_, load, load.positions_here);
  }
  void give_workspace(std::int64_t spare_bytes) override { shape_ = with_workspaces(least_, spare_bytes); }
  Workspaces workspaces() const override { return shape_.workspace; }

 private:
  std::int64_t of_chunk(ChunkUse use, const ChunkLoad& load) const;

  const ChunkShape least_;
  ChunkShape shape_;
  bool whole_again_;  // recompute runs the whole forward pass again and keeps everything
};

}  // namespace evenkeel
