// The experts' feed-forward network on NVIDIA GPUs, as defined in compute/expert_ffn.h. One call processes
// all groups of rows, for native and foreign experts alike; only the device knows the group sizes.
//
// Method      Grouped products over tiles of rows. A persistent grid draws tiles from a schedule made on the
//             device. The first product gathers rows as it loads them and applies the activation in its
//             epilogue, so only the intermediate rows (h, and the saved pre-activations) pass through memory
//             between two products.
// Kernels     hopper: wgmma and bulk tensor copies, compute capability 9.0, sizes that are multiples of 8.
//             generic: mma.sync, 8.0 and later, any size. The constructor chooses one of the two.
// Guarantee   No host synchronisation and no allocation: every call is a fixed list of launches and can be
//             captured in a graph. A row's results depend neither on its position nor on the other rows. Sums
//             over rows (gradients) use the order of positions, so the same input gives the same bits.
// Memory      The caller provides all memory: device addresses, 16-byte aligned.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "evenkeel/compute/expert_ffn.h"

namespace evenkeel {

class CudaStream;

// One expert's gradients, of type CudaExpertOptions::gradient_type; backward adds to them. Bias pointers are
// null if the expert has no biases.
struct DeviceExpertGradients {
  void* gate_up = nullptr;
  void* down = nullptr;
  void* gate_up_bias = nullptr;
  void* down_bias = nullptr;
};

// Group g has the positions [begin[g], begin[g + 1]); groups may be empty. All pointers are to device memory.
// This memory is read only when the launches run, so earlier work on the stream may still write it.
struct DeviceGroups {
  int num_groups = 0;
  const std::int32_t* begin = nullptr;               // [num_groups + 1], non-decreasing
  const ExpertWeights* weights = nullptr;            // [num_groups]
  const DeviceExpertGradients* gradients = nullptr;  // [num_groups], backward only
  const std::int32_t* input_row = nullptr;           // by position
  const std::int32_t* output_row = nullptr;          // by position
  std::int64_t max_positions = 0;                    // upper bound of begin[num_groups]
};

enum class CudaKernels { automatic, hopper, generic };

struct CudaExpertOptions {
  DataType gradient_type = DataType::f32;  // of weight and bias gradients
  CudaKernels kernels = CudaKernels::automatic;
};

// Tensors that backward reads and writes, besides groups and workspace.
struct DeviceBackward {
  const void* input = nullptr;        // rows of D, as in forward
  const void* grad_output = nullptr;  // rows of D, read at input_row
  const float* weight = nullptr;      // by output_row
  const std::byte* saved = nullptr;   // what forward saved; null: recomputed with the same bits
  float* grad_weight = nullptr;       // by output_row; written

  // The gradient of the input, in f32 rows of D. `grad_position` gets one row per position; if it is null,
  // these rows are kept in the workspace. If `grad_input` is not null, each position's row is also added to
  // the grad_input row of the input row that the position reads, in the order of positions.
  float* grad_position = nullptr;  // [max_positions, D]
  float* grad_input = nullptr;     // [input_rows, D]
  std::int64_t input_rows = 0;
};

class CudaExpertFfn {
 public:
  virtual ~CudaExpertFfn() = default;
  virtual const ExpertShape& shape() const = 0;
  // Either hopper or generic.
  virtual CudaKernels kernels() const = 0;

  // Bytes of device memory that a call needs as workspace.
  virtual std::int64_t forward_workspace_bytes(int num_groups, std::int64_t max_positions) const = 0;
  // Depends only on backward.input_rows and on which pointers in `backward` are null.
  virtual std::int64_t backward_workspace_bytes(int num_groups, std::int64_t max_positions,
                                                const DeviceBackward& backward) const = 0;
  // Bytes that forward saves for backward per position: the pre-activations.
  virtual std::int64_t saved_bytes_per_position() const = 0;

  // output[output_row[i]] = expert(input[input_row[i]]). `saved` is null or has space for max_positions.
  // Throws InvalidArgument if the workspace is too small, and Error if CUDA refuses a launch.
  virtual void forward(const DeviceGroups& groups, const void* input, void* output, std::byte* saved,
                       std::span<std::byte> workspace, CudaStream& stream) const = 0;
  virtual void backward(const DeviceGroups& groups, const DeviceBackward& backward,
                        std::span<std::byte> workspace, CudaStream& stream) const = 0;
};

// Makes the network for the calling thread's current device. The object is immutable, so any number of
// threads and streams may use it at once. Throws InvalidArgument for a shape without rows or columns. Throws
// Unsupported for f32 rows, for devices before compute capability 8.0, and if hopper kernels are requested
// where they cannot run.
std::shared_ptr<const CudaExpertFfn> make_cuda_expert_ffn(const ExpertShape& shape,
                                                          const CudaExpertOptions& options = {});

}  // namespace evenkeel
