// A step's exchange on devices, as launches on a stream: none waits for the host, allocates, or needs a
// size that only the device knows. Ranks read each other's memory, so every pair of calls that say "of
// all ranks" has a StreamBarrier (stream_barrier.h) of the ranks' streams between it and what wrote there.
#pragma once

#include <cstddef>
#include <cstdint>

#include "evenkeel/exchange/cuda/routes.h"

namespace evenkeel {
class CudaStream;
}

namespace evenkeel::cuda {

// One expert's tensors, in the order of kExpertParts (exchange/weight_transfer.h); null where it has none.
struct ExpertTensors {
  void* part[4] = {};
};
// Elements of each tensor, and of a block that holds all of them, parts on boundaries of 16 bytes.
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

// The caller's tensors of a call, of one rank; rows are bf16.
struct StepTensors {
  const void* hidden = nullptr;       // [tokens, D]
  const float* weights = nullptr;     // [tokens k]
  const void* grad_output = nullptr;  // [tokens, D]
};

// Memory that a rank shows to the others; its addresses hold from construction on.
struct PeerView {
  const StepTensors* tensors = nullptr;
  const std::int32_t* block_counts = nullptr;  // [most_chunks][E]
  const void* results = nullptr;               // [positions, D], in order of source
  const float* row_gradients = nullptr;        // [rows here, D]
  const float* weight_gradients = nullptr;     // [positions], in order of source
  const ExpertTensors* weights = nullptr;      // [E], of the experts at home there
  const float* foreign_gradients = nullptr;    // [blocks], of experts that others own (internal/returning.h)
};

// All ranks' outboxes and views, in device memory.
struct Peers {
  const OutboxView* outboxes = nullptr;  // [P]
  const PeerView* views = nullptr;       // [P]
};

// A chunk of this rank: everything that its launches read and write.
struct ChunkWork {
  RouteShape shape;
  SliceView slices;
  StepView step;
  ChunkView chunk;
  OutboxView outbox;
  Peers peers;
  int index = 0;
};

// Shows the others the tensors of a call.
void publish_tensors(StepTensors* mine, const StepTensors& tensors, CudaStream& stream);
// Counts and ranks this rank's assignments by slice; `block_counts` [most_chunks][E] are for all ranks.
void count_slices(const RouteShape& shape, const SliceView& slices, std::int32_t* block_counts,
                  CudaStream& stream);
// block_counts of all ranks into `counts` [most_chunks][P][E].
void gather_counts(const RouteShape& shape, const Peers& peers, std::int32_t* counts, CudaStream& stream);

// After planning: what this rank borrows, and in how many chunks all go. `homes` lies in device memory.
void prepare_step(const RouteShape& shape, const PlacementView& homes, const StepView& step,
                  CudaStream& stream);

// From the step's tables to this rank's outbox; for all ranks.
void deal_and_send(const ChunkWork& work, CudaStream& stream);
// From the outboxes of all ranks to input_row and output_row.
void receive(const ChunkWork& work, CudaStream& stream);

// The rows here, [rows, D], from the hidden rows of all ranks; or from their gradients of outputs.
enum class TokenRows { hidden, grad_output };
void gather_rows(const ChunkWork& work, TokenRows which, std::int64_t hidden, void* rows, CudaStream& stream);
// Zeros for as many rows of f32.
void zero_rows(const ChunkWork& work, std::int64_t hidden, float* rows, CudaStream& stream);
// Router weights by output_row.
void gather_weights(const ChunkWork& work, float* weights, CudaStream& stream);

// Each token's weighted sum over the results of all ranks, in top-k order, in f32, rounded once. `output` and
// what is returned below are of the step: the chunk's tokens are found in it.
void combine(const ChunkWork& work, const float* weights, std::int64_t hidden, void* output,
             CudaStream& stream);
// Each token's gradient, summed over ranks, and those of its router weights.
void combine_gradients(const ChunkWork& work, std::int64_t hidden, void* grad_hidden, float* grad_weights,
                       CudaStream& stream);

// Copies what the chunk's round `round` borrows and `places` [places][block], bf16, does not hold by then
// (weight_copies.h), from the weights of all ranks.
void borrow_weights(const ChunkWork& work, const ExpertLayout& layout, int round, void* places,
                    CudaStream& stream);
// Adds what all ranks made of gradients for the experts that this rank owns to these, in the plan's order,
// f32. `gradients` [num_natives]; those of experts that others own are not touched.
void return_gradients(const ChunkWork& work, const PlacementView& homes, const ExpertLayout& layout,
                      const ExpertTensors* gradients, CudaStream& stream);

}  // namespace evenkeel::cuda
