// The kernels that move rows: they read other ranks' memory in place.
//
// Cost  Moves every byte once. A warp handles a row, or part of a token's columns. Each lane reads 16 bytes
//       at a time, and issues several reads before it uses the first.
#include <cuda_bf16.h>

#include "evenkeel/exchange/cuda/device_exchange.h"
#include "evenkeel/exchange/cuda/internal/inward.h"
#include "evenkeel/exchange/cuda/internal/launch.cuh"

namespace evenkeel::cuda {

namespace {

// What a lane reads at once: 8 elements (16 bytes) if rows are aligned to 16 bytes, otherwise one.
struct Eight {
  static constexpr int kWidth = 8;
  using Bits = uint4;
  static __device__ Bits read(const __nv_bfloat16* from) { return *reinterpret_cast<const uint4*>(from); }
  static __device__ void add(float weight, const Bits& bits, float (&sum)[8]) {
    const unsigned words[4] = {bits.x, bits.y, bits.z, bits.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      sum[2 * i] = fmaf(weight, __uint_as_float(words[i] << 16), sum[2 * i]);
      sum[2 * i + 1] = fmaf(weight, __uint_as_float(words[i] & 0xffff0000u), sum[2 * i + 1]);
    }
  }
  static __device__ void load(const float* from, float (&to)[8]) {
    const float4 low = *reinterpret_cast<const float4*>(from);
    const float4 high = *reinterpret_cast<const float4*>(from + 4);
    const float all[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
    for (int i = 0; i < 8; ++i) to[i] = all[i];
  }
  static __device__ void store(__nv_bfloat16* to, const float (&from)[8]) {
    unsigned words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const __nv_bfloat162 pair = __floats2bfloat162_rn(from[2 * i], from[2 * i + 1]);
      words[i] = *reinterpret_cast<const unsigned*>(&pair);
    }
    *reinterpret_cast<uint4*>(to) = make_uint4(words[0], words[1], words[2], words[3]);
  }
  static __device__ void copy(const __nv_bfloat16* from, __nv_bfloat16* to) {
    *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(from);
  }
};

struct One {
  static constexpr int kWidth = 1;
  struct Bits {
    __nv_bfloat16 number = __ushort_as_bfloat16(0);
  };
  static __device__ Bits read(const __nv_bfloat16* from) { return {*from}; }
  static __device__ void add(float weight, const Bits& bits, float (&sum)[1]) {
    sum[0] = fmaf(weight, __bfloat162float(bits.number), sum[0]);
  }
  static __device__ void load(const float* from, float (&to)[1]) { to[0] = *from; }
  static __device__ void store(__nv_bfloat16* to, const float (&from)[1]) {
    *to = __float2bfloat16_rn(from[0]);
  }
  static __device__ void copy(const __nv_bfloat16* from, __nv_bfloat16* to) { *to = *from; }
};

__device__ int lane_of_warp() {
  return static_cast<int>(threadIdx.x) % 32;
}

__device__ const __nv_bfloat16* rows_of(const PeerView& peer, TokenRows which) {
  const StepTensors& tensors = *peer.tensors;
  return static_cast<const __nv_bfloat16*>(which == TokenRows::hidden ? tensors.hidden : tensors.grad_output);
}

template <class Unit>
__global__ void __launch_bounds__(kThreads)
    gather_rows_kernel(ChunkWork work, TokenRows which, std::int64_t hidden, __nv_bfloat16* rows) {
  const Inward inward(work.shape, work.step, work.chunk, work.peers.outboxes);
  for_warps(inward.rows(), [&](std::int64_t row) {
    const Inward::Origin origin = inward.origin(static_cast<int>(row));
    const __nv_bfloat16* const from = rows_of(work.peers.views[origin.rank], which) + origin.token * hidden;
    __nv_bfloat16* const to = rows + row * hidden;
#pragma unroll 4
    for (std::int64_t c = lane_of_warp() * Unit::kWidth; c < hidden; c += 32 * Unit::kWidth)
      Unit::copy(from + c, to + c);
  });
}

__global__ void zero_rows_kernel(ChunkWork work, std::int64_t hidden, float* rows) {
  const Inward inward(work.shape, work.step, work.chunk, work.peers.outboxes);
  for_grid(inward.rows() * hidden, [&](std::int64_t i) { rows[i] = 0; });
}

__global__ void gather_weights_kernel(ChunkWork work, float* weights) {
  const Inward inward(work.shape, work.step, work.chunk, work.peers.outboxes);
  for_grid(inward.positions(), [&](std::int64_t i) {
    const Inward::Origin origin = inward.assignment(static_cast<int>(i));
    weights[i] = work.peers.views[origin.rank].tensors->weights[origin.token];
  });
}

// The range of the chunk's tokens in the step.
struct Tokens {
  std::int64_t first, count;
};
__device__ Tokens tokens_of(const ChunkWork& work) {
  const ChunkRange range = slices_of(work.shape, work.index, *work.step.num_chunks);
  const std::int64_t first = first_token(work.shape, work.slices.tokens, range.first);
  return {first, first_token(work.shape, work.slices.tokens, range.end) - first};
}

// Columns of a token that a warp handles at once.
template <class Unit>
constexpr std::int64_t kPart = 32 * Unit::kWidth;

template <class Unit>
__device__ std::int64_t parts_of(std::int64_t hidden) {
  return (hidden + kPart<Unit> - 1) / kPart<Unit>;
}

// Calls f(token in the chunk, column), divided among warps and their lanes.
template <class Unit, class F>
__device__ void for_columns(const Tokens& tokens, std::int64_t hidden, const F& f) {
  const std::int64_t parts = parts_of<Unit>(hidden);
  for_warps(tokens.count * parts, [&](std::int64_t i) {
    const std::int64_t column = i % parts * kPart<Unit> + lane_of_warp() * Unit::kWidth;
    if (column < hidden) f(i / parts, column);
  });
}

// Some of a token's results and their weights; null if a result was not computed.
constexpr int kResultsAtOnce = 8;
struct Results {
  const __nv_bfloat16* row[kResultsAtOnce];
  float weight[kResultsAtOnce];

  // Takes the token's results from index `first`. `token` is its index in the chunk.
  __device__ Results(const ChunkWork& work, const Tokens& tokens, const float* weights, std::int64_t token,
                     int first, std::int64_t hidden) {
    const int k = work.shape.top_k;
#pragma unroll
    for (int i = 0; i < kResultsAtOnce; ++i) {
      const std::int64_t a = token * k + first + i;
      const int rank = first + i < k ? work.chunk.destination[a] : -1;
      row[i] = nullptr;
      weight[i] = 0;
      if (rank < 0) continue;
      const std::int64_t result = work.peers.outboxes[rank].in_position[work.shape.me] +
                                  (work.chunk.entry[a] - work.outbox.begin[rank]);
      row[i] = static_cast<const __nv_bfloat16*>(work.peers.views[rank].results) + result * hidden;
      weight[i] = weights[tokens.first * k + a];
    }
  }

  // Issues all reads before it uses the first.
  template <class Unit>
  __device__ void add_to(float (&sum)[Unit::kWidth], std::int64_t column) const {
    typename Unit::Bits bits[kResultsAtOnce];
#pragma unroll
    for (int i = 0; i < kResultsAtOnce; ++i)
      bits[i] = row[i] == nullptr ? typename Unit::Bits{} : Unit::read(row[i] + column);
#pragma unroll
    for (int i = 0; i < kResultsAtOnce; ++i) Unit::add(weight[i], bits[i], sum);
  }
};

// A warp looks up a token's results once for `parts_each` parts of its columns (or for all columns).
template <class Unit>
__global__ void __launch_bounds__(kThreads)
    combine_kernel(ChunkWork work, const float* weights, std::int64_t hidden, std::int64_t parts_each,
                   __nv_bfloat16* output) {
  const Tokens tokens = tokens_of(work);
  const std::int64_t columns_each = parts_each * kPart<Unit>;
  const std::int64_t shares = (hidden + columns_each - 1) / columns_each;
  for_warps(tokens.count * shares, [&](std::int64_t i) {
    const std::int64_t token = i / shares, begin = i % shares * columns_each;
    const std::int64_t end = begin + columns_each < hidden ? begin + columns_each : hidden;
    const Results results(work, tokens, weights, token, 0, hidden);
    for (std::int64_t c = begin + lane_of_warp() * Unit::kWidth; c < end; c += kPart<Unit>) {
      float sum[Unit::kWidth] = {};
      results.template add_to<Unit>(sum, c);
      for (int first = kResultsAtOnce; first < work.shape.top_k; first += kResultsAtOnce)
        Results(work, tokens, weights, token, first, hidden).template add_to<Unit>(sum, c);
      Unit::store(output + (tokens.first + token) * hidden + c, sum);
    }
  });
}

// A token has one row gradient on each rank that computed it, found through its first entry there.
template <class Unit>
__global__ void __launch_bounds__(kThreads)
    combine_gradients_kernel(ChunkWork work, std::int64_t hidden, __nv_bfloat16* grad_hidden) {
  const Tokens tokens = tokens_of(work);
  const int k = work.shape.top_k;
  for_columns<Unit>(tokens, hidden, [&](std::int64_t token, std::int64_t column) {
    float sum[Unit::kWidth] = {};
    for (int i = 0; i < k; ++i) {
      const std::int64_t a = token * k + i;
      const int rank = work.chunk.destination[a];
      bool is_first = rank >= 0;
      for (int other = 0; other < k && is_first; ++other)
        is_first = work.chunk.destination[token * k + other] != rank ||
                   work.chunk.entry[token * k + other] >= work.chunk.entry[a];
      if (!is_first) continue;
      const std::int64_t row =
          work.peers.outboxes[rank].in_row[work.shape.me] + work.outbox.row[work.chunk.entry[a]];
      float value[Unit::kWidth];
      Unit::load(work.peers.views[rank].row_gradients + row * hidden + column, value);
#pragma unroll
      for (int c = 0; c < Unit::kWidth; ++c) sum[c] += value[c];
    }
    Unit::store(grad_hidden + (tokens.first + token) * hidden + column, sum);
  });
}

__global__ void combine_weight_gradients_kernel(ChunkWork work, float* grad_weights) {
  const Tokens tokens = tokens_of(work);
  const int k = work.shape.top_k;
  for_grid(tokens.count * k, [&](std::int64_t a) {
    const int rank = work.chunk.destination[a];
    float gradient = 0;
    if (rank >= 0)
      gradient =
          work.peers.views[rank].weight_gradients[work.peers.outboxes[rank].in_position[work.shape.me] +
                                                  (work.chunk.entry[a] - work.outbox.begin[rank])];
    grad_weights[tokens.first * k + a] = gradient;
  });
}

// Calls launch(unit) with the widest unit that fits the row length.
template <class Launch>
void by_width(std::int64_t hidden, const Launch& launch) {
  hidden % Eight::kWidth == 0 ? launch(Eight()) : launch(One());
}

std::int64_t most_tokens(const RouteShape& shape) {
  return shape.most_assignments / shape.top_k;
}

// Blocks for one warp per part of a token's columns.
unsigned blocks_of_tokens(const RouteShape& shape, std::int64_t hidden, int width) {
  return blocks_for(most_tokens(shape) * ((hidden + 32 * width - 1) / (32 * width)), kWarpsInBlock);
}

// With this many tokens, one warp per token keeps every multiprocessor busy.
constexpr std::int64_t kManyTokens = 8192;

}  // namespace

void gather_rows(const ChunkWork& work, TokenRows which, std::int64_t hidden, void* rows,
                 CudaStream& stream) {
  by_width(hidden, [&](auto unit) {
    gather_rows_kernel<decltype(unit)>
        <<<blocks_for(work.shape.most_positions, kWarpsInBlock), kThreads, 0, native(stream)>>>(
            work, which, hidden, static_cast<__nv_bfloat16*>(rows));
  });
  EVENKEEL_CUDA_CHECK_LAUNCH("gather rows");
}

void zero_rows(const ChunkWork& work, std::int64_t hidden, float* rows, CudaStream& stream) {
  zero_rows_kernel<<<blocks_for(work.shape.most_positions * hidden, kThreads), kThreads, 0, native(stream)>>>(
      work, hidden, rows);
  EVENKEEL_CUDA_CHECK_LAUNCH("zero rows");
}

void gather_weights(const ChunkWork& work, float* weights, CudaStream& stream) {
  gather_weights_kernel<<<blocks_for(work.shape.most_positions, kThreads), kThreads, 0, native(stream)>>>(
      work, weights);
  EVENKEEL_CUDA_CHECK_LAUNCH("gather router weights");
}

void combine(const ChunkWork& work, const float* weights, std::int64_t hidden, void* output,
             CudaStream& stream) {
  by_width(hidden, [&](auto unit) {
    using Unit = decltype(unit);
    const std::int64_t parts_each = most_tokens(work.shape) < kManyTokens ? 1 : hidden;
    combine_kernel<Unit><<<blocks_of_tokens(work.shape, hidden, Unit::kWidth), kThreads, 0, native(stream)>>>(
        work, weights, hidden, parts_each, static_cast<__nv_bfloat16*>(output));
  });
  EVENKEEL_CUDA_CHECK_LAUNCH("combine");
}

void combine_gradients(const ChunkWork& work, std::int64_t hidden, void* grad_hidden, float* grad_weights,
                       CudaStream& stream) {
  by_width(hidden, [&](auto unit) {
    using Unit = decltype(unit);
    combine_gradients_kernel<Unit>
        <<<blocks_of_tokens(work.shape, hidden, Unit::kWidth), kThreads, 0, native(stream)>>>(
            work, hidden, static_cast<__nv_bfloat16*>(grad_hidden));
  });
  EVENKEEL_CUDA_CHECK_LAUNCH("combine gradients");
  combine_weight_gradients_kernel<<<blocks_for(work.shape.most_assignments, kThreads), kThreads, 0,
                                    native(stream)>>>(work, grad_weights);
  EVENKEEL_CUDA_CHECK_LAUNCH("combine gradients of router weights");
}

}  // namespace evenkeel::cuda
