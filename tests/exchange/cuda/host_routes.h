// The device's routing tables of all ranks of a step, made on the host by a team of one lane in the order of
// the kernels.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "evenkeel/exchange/cuda/routes.h"
#include "evenkeel/plan/cuda/placement_tables.h"
#include "tests/balance/cuda/host_plan.h"
#include "tests/plan/deal_oracle.h"

namespace evenkeel::testing {

struct RankTables {
  cuda::RouteShape shape;
  std::vector<std::int32_t> before, borrowed_expert, borrowed_from, borrowed_index, group_of, counts, quota,
      sent, arrived, piece_rank, piece_count, pieces, group_begin, entry, destination, firsts_before,
      tile_firsts, input_row, output_row, out_begin, out_rows, out_row, out_token, out_assignment, in_row,
      in_position;
  std::vector<std::uint16_t> rank_in_slice;
  std::int32_t num_chunks = 0;
  cuda::SliceView slices;
  cuda::StepView step;
  cuda::ChunkView chunk;
  cuda::OutboxView outbox;
};

struct HostRoutesOptions {
  int num_slices = 4;
  int most_chunks = 1;
  std::int32_t most_positions = 0;  // 0: as many as any routing can send
  int borrow_slots = 0;             // slots for borrowed experts, reused in rounds; 0: a slot for each
};

class HostRoutes {
 public:
  // `choices` and `placement` must outlive the object.
  HostRoutes(const Choices& choices, const LayerPlacement& placement, const StepPlan& plan,
             const HostRoutesOptions& options);

  int num_chunks() const { return ranks_.front().num_chunks; }
  void make_chunk(int chunk);
  // A rank's two parts of make_chunk(): send() fills its outbox from its choices; receive() reads the
  // outboxes after all ranks have sent.
  void send(int rank, int chunk);
  void receive(int rank);
  const RankTables& rank(int rank) const { return ranks_[static_cast<std::size_t>(rank)]; }
  // The first token and the number of tokens that a rank has in a chunk.
  std::int64_t first_token(int rank, int chunk) const;
  std::int64_t tokens(int rank, int chunk) const {
    return first_token(rank, chunk + 1) - first_token(rank, chunk);
  }
  std::vector<cuda::OutboxView> outboxes() const;

 private:
  void count(RankTables& rank, const std::vector<std::int32_t>& ids);
  void point(RankTables& rank);

  const Choices& choices_;
  HostRoutesOptions options_;
  cuda::PlacementTables tables_;
  FlatPlan plan_;
  std::vector<std::int32_t> block_counts_;  // [most_chunks][P][E]
  std::vector<RankTables> ranks_;
};

}  // namespace evenkeel::testing
