// A step's exchange on devices, as launches on a stream. No launch waits for the host, allocates, or needs a
// size that only the device knows. Ranks read each other's memory: before a call that reads data "of all
// ranks", a StreamBarrier (stream_barrier.h) must follow the launches that wrote it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "evenkeel/exchange/cuda/routes.h"

namespace evenkeel {
class CudaStream;
}

namespace evenkeel::cuda {

// One expert's tensors, in the order of kExpertParts (exchange/weight_transfer.h); null for a missing part.
struct ExpertTensors {
  void* part[4] = {};
};
// Elements of each tensor, and of a block that holds them all with each part aligned to 16 bytes.
struct ExpertLayout {
  std::int64_t elements[4] = {};

  EVENKEEL_HOST_DEVICE static std::int64_t aligned(std::int64_t n) { return (n + 15) / 16 * 16; }
  EVENKEEL_HOST_DEVICE std::int64_t begin(int part) const {
    std::int64_t at = 0;
    for (int i = 0; i < part; ++i) at += aligned(elements[i]);
    return at;
  }
  EVENKEEL_HOST_DEVICE std::int64_t block() const { return begin(4); }
};

// The tensors that one rank passes to a call; rows are bf16.
struct StepTensors {
  const void* hidden = nullptr;       // [tokens, D]
  const float* weights = nullptr;     // [tokens k]
  const void* grad_output = nullptr;  // [tokens, D]
};

// A rank's memory that the other ranks read. The addresses are fixed at construction.
struct PeerView {
  const StepTensors* tensors = nullptr;
  const std::int32_t* block_counts = nullptr;  // [most_chunks][E]
  const void* results = nullptr;               // [positions, D], in order of source
  const float* row_gradients = nullptr;        // [rows here, D]
  const float* weight_gradients = nullptr;     // [positions], in order of source
  const ExpertTensors* weights = nullptr;      // [E], set for the experts native to that rank
  const float* foreign_gradients = nullptr;    // [blocks], of experts that others own (internal/returning.h)
};

// Arrays of all ranks' outboxes and views, in device memory.
struct Peers {
  const OutboxView* outboxes = nullptr;  // [P]
  const PeerView* views = nullptr;       // [P]
};

// Everything that the launches of one chunk read and write on this rank.
struct ChunkWork {
  RouteShape shape;
  SliceView slices;
  StepView step;
  ChunkView chunk;
  OutboxView outbox;
  Peers peers;
  int index = 0;
};

// Publishes the tensors of a call to the other ranks.
void publish_tensors(StepTensors* mine, const StepTensors& tensors, CudaStream& stream);
// Counts this rank's assignments by slice and expert, and numbers them within their slice and expert. All
// ranks read `block_counts` [most_chunks][E].
void count_slices(const RouteShape& shape, const SliceView& slices, std::int32_t* block_counts,
                  CudaStream& stream);
// Gathers block_counts of all ranks into `counts` [most_chunks][P][E].
void gather_counts(const RouteShape& shape, const Peers& peers, std::int32_t* counts, CudaStream& stream);

// Call after planning. Lists what this rank borrows, and chooses the number of chunks for all ranks. `homes`
// is in device memory.
void prepare_step(const RouteShape& shape, const PlacementView& homes, const StepView& step,
                  CudaStream& stream);

// Fills this rank's outbox, which all ranks read, from the step's tables.
void deal_and_send(const ChunkWork& work, CudaStream& stream);
// Fills input_row and output_row from the outboxes of all ranks.
void receive(const ChunkWork& work, CudaStream& stream);

// Gathers the rows that this rank computes, [rows, D], from the hidden rows or output gradients of all ranks.
enum class TokenRows { hidden, grad_output };
void gather_rows(const ChunkWork& work, TokenRows which, std::int64_t hidden, void* rows, CudaStream& stream);
// Zeroes one f32 row for each row that this rank computes.
void zero_rows(const ChunkWork& work, std::int64_t hidden, float* rows, CudaStream& stream);
// Gathers router weights from all ranks, in the order of output_row.
void gather_weights(const ChunkWork& work, float* weights, CudaStream& stream);

// Writes each token's weighted sum over the results of all ranks: in top-k order, in f32, rounded once.
// `output`, and the outputs of the functions below, hold the whole step; only the chunk's tokens are written.
void combine(const ChunkWork& work, const float* weights, std::int64_t hidden, void* output,
             CudaStream& stream);
// Writes each token's gradient, summed over ranks, and the gradients of its router weights.
void combine_gradients(const ChunkWork& work, std::int64_t hidden, void* grad_hidden, float* grad_weights,
                       CudaStream& stream);

// Copies the experts that the chunk borrows in round `round` from the weights of all ranks to `slots`
// [borrow_slots][block], bf16. Leaves out experts that `slots` already holds (weight_copies.h).
void borrow_weights(const ChunkWork& work, const ExpertLayout& layout, int round, void* slots,
                    CudaStream& stream);
// Adds the gradients that all ranks computed for this rank's experts to `gradients` [num_natives], in the
// plan's order, in f32. Skips native experts that another rank owns.
void return_gradients(const ChunkWork& work, const PlacementView& homes, const ExpertLayout& layout,
                      const ExpertTensors* gradients, CudaStream& stream);

}  // namespace evenkeel::cuda
